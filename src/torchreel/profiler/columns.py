"""Columns of a reel as numpy arrays, and the ways up a tree of calls that is given by the row of each one's parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]


def numbers(table: pa.Table, column: str, null: int = -1) -> Integers:
    """A column of integers, with a number in the place of null."""
    values: Integers = pc.fill_null(table[column], null).to_numpy().astype(np.int64)
    return values


def rows_of(ids: Integers, wanted: Integers) -> Integers:
    """The row of each wanted id, -1 if there is none."""
    if not len(ids):
        return np.full(len(wanted), -1)
    order = np.argsort(ids)
    rows = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    return np.where(ids[rows] == wanted, rows, -1)


def above(start: Integers, parent: Integers, passes: Callable[[Integers, Integers], Booleans]) -> Integers:
    """From each start, which is a row or -1, up the tree as long as `passes(index of the start, row)` says so."""
    found = start.copy()
    climbing = np.flatnonzero(found >= 0)
    while len(climbing):
        climbing = climbing[passes(climbing, found[climbing])]
        found[climbing] = parent[found[climbing]]
        climbing = climbing[found[climbing] >= 0]
    return found


def sums(parent: Integers, values: Integers) -> Integers:
    """For each row the sum of its children's values."""
    totals = np.zeros(len(parent), np.int64)
    np.add.at(totals, parent[parent >= 0], values[parent >= 0])
    return totals
