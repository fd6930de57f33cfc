"""Which call is around which, as torch.profiler sees it, from who called whom.

Rows are sorted by their beginning. `caller` is the row of the innermost call that was open when a call began, -1 for
none. That call need not contain it: a range begins in `__enter__` and outlives it.
"""

from __future__ import annotations

import numpy as np

from torchreel.profiler.columns import Booleans, Integers, above

_NEVER = np.iinfo(np.int64).max


def crossed(caller: Integers, end: Integers, is_python_call: Booleans, is_range: Booleans) -> Booleans:
    """Which Python calls overlap with a range without one containing the other.

    `__enter__` and `__exit__` of a range do, and all that they call on the way. Shown as calls beside the range, the
    time that they share with it would be counted twice, and the call around both left with less than none.
    """
    result = np.zeros(len(caller), bool)
    climbing = np.flatnonzero(is_range & (caller >= 0))
    up = caller[climbing]
    while len(climbing):
        outlived = is_python_call[up] & (end[up] < end[climbing])
        climbing, up = climbing[outlived], up[outlived]
        result[up] = True
        up = caller[up]
        climbing, up = climbing[up >= 0], up[up >= 0]
    return result | (is_python_call & (_first_end_above(caller, end, is_range) < end))


def _first_end_above(caller: Integers, end: Integers, is_range: Booleans) -> Integers:
    """For each row the first end of a range around it. Each round doubles the distance."""
    first = np.where((caller >= 0) & is_range[caller], end[caller], _NEVER)
    up = caller.copy()
    while (up >= 0).any():
        rows = np.flatnonzero(up >= 0)
        first[rows] = np.minimum(first[rows], first[up[rows]])
        up[rows] = up[up[rows]]
    return first


def nest(
    caller: Integers, end: Integers, name: Integers, hidden: Booleans, is_async: Booleans, merge: bool = True
) -> tuple[Integers, Booleans]:
    """The row of the call around each call, -1 for none, and which calls are shown.

    A call is around another if it contains it wholly; an asynchronous one is around none. A call that is the only one
    that its parent makes, and has its parent's name, is a redispatch, and not shown if calls are to be merged.
    """
    parent = above(caller, caller, lambda row, up: hidden[up] | is_async[up] | (end[up] < end[row]))
    parent[is_async | hidden] = -1
    children = np.bincount(parent[parent >= 0], minlength=len(parent))
    redispatch = (parent >= 0) & (children[parent] == 1) & (name[parent] == name) & merge
    return above(parent, parent, lambda _, up: redispatch[up]), ~hidden & ~redispatch
