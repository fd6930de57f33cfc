"""Private parts of CUDA's caching allocator. A build of torch without CUDA has only some of them: ask it first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Adds the stack of the FX graph to the frames of a snapshot, in place.
add_fx_stacks = torch._utils._augment_memory_snapshot_stack_traces


def record_history(*args: Any, **kwargs: Any) -> None:
    """torch.cuda.memory._record_memory_history: switches the history on and off."""
    torch.cuda.memory._record_memory_history(*args, **kwargs)


def set_metadata(text: str) -> None:
    """Text that the following entries of the history carry."""
    torch.cuda.memory._set_memory_metadata(text)


def allocation_traceback(address: int) -> list[dict[str, Any]] | None:
    """Where the block at this address was allocated, if the history knows it."""
    frames: list[dict[str, Any]] | None = torch.cuda.memory._allocation_traceback(address)
    return frames


def snapshot(pool: tuple[int, int], traces: bool) -> dict[str, Any]:
    """The state of CUDA's memory: of one pool, or of all for (0, 0)."""
    found: dict[str, Any] = torch._C._cuda_memorySnapshot((*pool, traces))
    return found


def on_out_of_memory(observer: Callable[[int, int, int, int], object]) -> None:
    """Call it with device, asked, allocated and free bytes when CUDA has too little memory."""
    torch._C._cuda_attach_out_of_memory_observer(observer)


def cuda_snapshot() -> dict[str, Any]:
    """torch.cuda.memory._snapshot: the state of CUDA's memory and, if it was switched on, its history."""
    found: dict[str, Any] = torch.cuda.memory._snapshot()
    return found


def cuda_is_here() -> bool:
    """Whether there is a CUDA device, whose allocator keeps a history."""
    return bool(torch.cuda.is_available())
