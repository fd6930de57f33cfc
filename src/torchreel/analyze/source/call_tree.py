"""Which call made which, as arrays with a row per call of one process. Nothing here walks call by call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def plain(values: Any, otherwise: int) -> Ints:
    """Whole numbers as DuckDB gives them, with another in place of null."""
    return np.ma.filled(values, otherwise).astype(np.int64, copy=False)


def rows_of(ids: Ints, wanted: Ints) -> Ints:
    """The row of each wanted id; -1 for one that is not there."""
    if not len(ids):
        return np.full(len(wanted), -1)
    order = np.argsort(ids, kind="stable")
    at = order[np.minimum(ids[order].searchsorted(wanted), len(ids) - 1)]
    return np.where((wanted >= 0) & (ids[at] == wanted), at, -1)


def inherited(above: Ints, given: Ints) -> Ints:
    """What was given to each call (-1: nothing), else to the nearest call around it: a round for each level of calls.

    `above` has the row of the call that made each, or -1.
    """
    found = given.copy()
    open_rows = np.flatnonzero((above >= 0) & (found < 0))
    while len(open_rows):
        from_above = found[above[open_rows]]
        if not (from_above >= 0).any():
            break
        found[open_rows] = from_above
        open_rows = open_rows[from_above < 0]
    return found


def within_own_group(above: Ints, group: Ints) -> NDArray[np.bool_]:
    """Which calls stand below a call of their own group, at whatever depth; of group -1 none does.

    A call begins before those that it makes, so `above` must name earlier rows: rows that name later ones count as
    outermost.
    """
    above = np.where(above < np.arange(len(above)), above, -1)
    found = np.zeros(len(above), bool)
    rows = np.flatnonzero((above >= 0) & (group >= 0))
    at = above[rows]
    while len(rows):
        same = group[at] == group[rows]
        found[rows[same]] = True
        up = above[at]
        going = (up >= 0) & ~same
        rows, at = rows[going], up[going]
    return found
