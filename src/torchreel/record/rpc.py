"""torch.distributed.rpc: a call's range on the caller, and the ops that it runs on the worker, joined by a flow.

While a recording runs, functions sent to another worker are wrapped: the caller opens a range named as
torch names it, `rpc_sync#f(a -> b)`, and the worker runs the function within a range of its own. Both
carry the same flow id. Each process records itself, so remote ops have all the fields of local ones.
A TorchScript function is sent as it is: its ops are recorded on the worker, without a flow.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchreel import _core
from torchreel._torch.deployed import builtin_of
from torchreel._torch.distributed import future_of, invoke_rpc, is_asynchronous, set_invoke_rpc, worker_name


@dataclass(frozen=True)
class _Originals:
    invoke: Callable[..., Any]
    remote: Callable[..., Any]


_originals: _Originals | None = None
_ids = random.Random(os.urandom(8))


def link_calls() -> None:
    """From now on calls of this process are linked."""
    global _originals
    if _originals is not None or not torch.distributed.is_available() or not torch.distributed.rpc.is_available():
        return
    from torch.distributed import rpc

    _originals = _Originals(invoke_rpc(), rpc.api.remote)
    set_invoke_rpc(_invoke_linked)
    rpc.api.remote = rpc.remote = _remote_linked


def unlink_calls() -> None:
    global _originals
    if _originals is None:
        return
    from torch.distributed import rpc

    set_invoke_rpc(_originals.invoke)
    rpc.api.remote = rpc.remote = _originals.remote
    _originals = None


def _invoke_linked(to: Any, func: Any, rpc_type: Any, args: Any = None, kwargs: Any = None, *timeout: Any) -> Any:
    """Stands for the function through which rpc_sync and rpc_async go."""
    assert _originals is not None
    invoke = _originals.invoke
    return _call(to, func, rpc_type.value, args, kwargs, lambda f, a, k: invoke(to, f, rpc_type, a, k, *timeout))


def _remote_linked(to: Any, func: Any, args: Any = None, kwargs: Any = None, *timeout: Any, **named: Any) -> Any:
    """Stands for rpc.remote."""
    assert _originals is not None
    remote = _originals.remote
    return _call(to, func, "remote", args, kwargs, lambda f, a, k: remote(to, f, a, k, *timeout, **named))


def _call(to: Any, function: Any, kind: str, args: Any, kwargs: Any, send: Callable[..., Any]) -> Any:
    from torch.distributed.rpc import api

    if not _core.recording() or isinstance(function, torch.jit.ScriptFunction):
        return send(function, args, kwargs)
    # torch sends its own operators by name: they cannot be pickled.
    builtin = builtin_of(function)
    runner = _run_linked_async if is_asynchronous(function) else _run_linked
    name = builtin.removeprefix("aten::") if builtin else getattr(function, "__qualname__", str(function))
    name = f"rpc_{kind}#{name}({api.get_worker_info().name} -> {worker_name(to)})"
    flow = _ids.getrandbits(62)
    call = _core.Range(name)
    call.__enter__()
    try:
        _core.flow("rpc", flow, False)
        answer = send(runner, (name, flow, builtin or function, args or (), kwargs or {}), {})
    except BaseException:
        call.__exit__()
        raise
    # The range ends when the answer is there, on whichever thread that is.
    future_of(answer).add_done_callback(lambda _: call.__exit__())
    return answer


def _run_linked(name: str, flow: int, function: Any, args: Any, kwargs: Any) -> Any:
    """Runs on the worker."""
    if isinstance(function, str):
        namespace, _, operator = function.partition("::")
        function = getattr(getattr(torch.ops, namespace), operator)
    with _core.Range(f"{name}#remote"):
        if _core.recording():
            _core.flow("rpc", flow, True)
        return function(*args, **kwargs)


if torch.distributed.is_available() and torch.distributed.rpc.is_available():

    @torch.distributed.rpc.functions.async_execution  # type: ignore[untyped-decorator]
    def _run_linked_async(name: str, flow: int, function: Any, args: Any, kwargs: Any) -> Any:
        """As above, for a function whose result is a future."""
        return _run_linked(name, flow, function, args, kwargs)
