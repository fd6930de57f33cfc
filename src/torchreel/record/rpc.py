"""torch.distributed.rpc: a call's range on the caller, and the ops that it runs on the worker, joined by a flow.

While a recording runs, functions sent to another worker are wrapped: the caller opens a range named as
torch names it, `rpc_sync#f(a -> b)`, and the worker runs the function within a range of its own. Both
carry the same flow id. Each process records itself, so remote ops have all the fields of local ones.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import torch

from torchreel import _core

_original: Callable[..., Any] | None = None
_ids = random.Random(os.urandom(8))


def link_calls() -> None:
    """From now on calls of this process are linked."""
    global _original
    if _original is not None or not torch.distributed.is_available() or not torch.distributed.rpc.is_available():
        return
    from torch.distributed.rpc import api

    _original = api._invoke_rpc
    api._invoke_rpc = _invoke_linked


def unlink_calls() -> None:
    global _original
    if _original is None:
        return
    from torch.distributed.rpc import api

    api._invoke_rpc = _original
    _original = None


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or getattr(function, "name", None) or str(function)


def _invoke_linked(to: Any, function: Any, kind: Any, args: Any = None, kwargs: Any = None, *rest: Any) -> Any:
    from torch.distributed.rpc import api

    assert _original is not None
    if not _core.recording():
        return _original(to, function, kind, args, kwargs, *rest)
    worker = api._to_worker_info(to)
    name = f"rpc_{kind.value}#{_name(function)}({api.get_worker_info().name} -> {worker.name})"
    flow = _ids.getrandbits(62)
    wrapped = hasattr(function, "_wrapped_async_rpc_function")
    runner = _run_linked_async if wrapped else _run_linked
    call = _core.Range(name)
    call.__enter__()
    try:
        _core.flow("rpc", flow, False)
        future = _original(to, runner, kind, (name, flow, function, args or (), kwargs or {}), {}, *rest)
    except BaseException:
        call.__exit__()
        raise
    # The range ends when the answer is there, on whichever thread that is.
    done = future._get_future() if hasattr(future, "_get_future") else future
    if isinstance(done, torch.futures.Future):
        done.add_done_callback(lambda _: call.__exit__())
    else:
        call.__exit__()
    return future


def _run_linked(name: str, flow: int, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Runs on the worker."""
    with _core.Range(f"{name}#remote"):
        if _core.recording():
            _core.flow("rpc", flow, True)
        return function(*args, **kwargs)


if torch.distributed.is_available() and torch.distributed.rpc.is_available():
    _run_linked_async = torch.distributed.rpc.functions.async_execution(_run_linked)
