"""Where a step begins, for those who know better than the order of calls tells."""

from __future__ import annotations

import functools
from typing import Any

import torch

from torchreel import _graphs
from torchreel._torch.compiler import are_graph_trees_loaded


def mark_step_begin() -> None:
    """Say that a new step begins in this thread: what graphs gave out before is over.

    Outputs of functions that were graphed with held="error" can no longer be read: whoever tries is told which function
    made them. All others stay as they are for as long as they are held. `torch.compiler.cudagraph_mark_step_begin()`
    does the same.
    """
    _graphs.mark_step_begin()


def follow_torchs_steps() -> None:
    """From now on, torch.compiler.cudagraph_mark_step_begin() marks steps here as well."""
    if not hasattr(torch.compiler.cudagraph_mark_step_begin, "__wrapped__"):
        torch.compiler.cudagraph_mark_step_begin = _marking(torch.compiler.cudagraph_mark_step_begin)


def _marking(marks: Any) -> Any:
    @functools.wraps(marks)
    def mark() -> None:
        if are_graph_trees_loaded():  # else there are no trees of CUDA's, and to import them takes seconds
            marks()
        _graphs.mark_step_begin()

    return mark
