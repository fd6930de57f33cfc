"""Where a step begins, for those who know better than the order of calls tells."""

from __future__ import annotations

from torchreel import _graphs


def mark_step_begin() -> None:
    """Say that a new step begins in this thread: what graphs gave out before is over.

    Outputs of functions that were graphed with held="error" can no longer be read: whoever tries is told which function
    made them. All others stay as they are for as long as they are held.
    """
    _graphs.mark_step_begin()
