"""torch.utils.swap_tensors() refuses tensors that anybody refers to: graphs let go of them first, and record anew."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch

from torchreel import _tape

if TYPE_CHECKING:
    from torchreel.graphs.call.entry import Graphed

_alive: weakref.WeakSet[Graphed] = weakref.WeakSet()


def follow_swaps(graphed: Graphed) -> None:
    """From now on, a swap of tensors that this function's graphs use is possible as it is without them."""
    _alive.add(graphed)
    if not hasattr(torch.utils.swap_tensors, "__wrapped__"):
        torch.utils.swap_tensors = _letting_go(torch.utils.swap_tensors)


def alive() -> list[Graphed]:
    """All graphed functions."""
    return list(_alive)


def _letting_go(swap_tensors: Any) -> Any:
    @functools.wraps(swap_tensors)
    def swap(t1: torch.Tensor, t2: torch.Tensor) -> None:
        for graphed in alive():
            graphed.let_go(t1, t2)
        _tape.Capture.forget_last()
        swap_tensors(t1, t2)

    return swap
