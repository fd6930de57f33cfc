"""Private parts of c10d and RPC. Check torch.distributed.is_available() first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def c10d() -> Any:
    """The C++ module of collectives: ProcessGroup, Work, Reducer and their options."""
    import torch

    return torch._C._distributed_c10d


def invoke_rpc() -> Callable[..., Any]:
    """The function through which rpc_sync and rpc_async go."""
    from torch.distributed import rpc

    invoke: Callable[..., Any] = rpc.api._invoke_rpc
    return invoke


def set_invoke_rpc(function: Callable[..., Any]) -> None:
    """Put another function in its place."""
    from torch.distributed import rpc

    rpc.api._invoke_rpc = function


def worker_name(to: Any) -> str:
    """The name of a worker of RPC, from what names one: a name, a rank or a WorkerInfo."""
    from torch.distributed.rpc import api

    name: str = api._to_worker_info(to).name
    return name


def is_asynchronous(function: Any) -> bool:
    """Whether a function was marked by rpc.functions.async_execution: it returns a future."""
    return hasattr(function, "_wrapped_async_rpc_function")


def future_of(answer: Any) -> Any:
    """The future of a remote reference; an answer that is a future itself."""
    return answer._get_future() if hasattr(answer, "_get_future") else answer
