"""Sets of half-open intervals of whole nanoseconds: union, intersection, difference and length, exact.

A set is two int64 arrays, `start` and `end`: sorted, and none of its intervals is empty or touches the next. All
functions but `union` take and give such sets, and cost a few passes of numpy over their arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """The times t with start[i] <= t < end[i] for some i."""

    start: Times
    end: Times

    @property
    def length(self) -> int:
        """How many nanoseconds are in the set."""
        return int((self.end - self.start).sum())

    def within(self, begin: int, end: int) -> Intervals:
        """The part of the set from `begin` to `end`."""
        return intersection(self, union([begin], [end]))


def union(start: npt.ArrayLike, end: npt.ArrayLike) -> Intervals:
    """All times that lie in some [start, end), given in any order; those that do not end after they began are empty."""
    first, last = np.asarray(start, np.int64), np.asarray(end, np.int64)
    some = last > first
    first, last = first[some], last[some]
    order = np.argsort(first, kind="stable")
    first, last = first[order], last[order]
    if not len(first):
        return Intervals(first, last)
    reach = np.maximum.accumulate(last)
    opens = np.concatenate(([True], first[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Intervals(first[opens], reach[closes])


def joined(*sets: Intervals) -> Intervals:
    """The times that lie in any of the sets."""
    if not sets:
        return union([], [])
    return union(np.concatenate([one.start for one in sets]), np.concatenate([one.end for one in sets]))


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """The times that lie in both sets."""
    pieces = _pieces(one, other)
    keep = contains(one, pieces.start) & contains(other, pieces.start)
    return union(pieces.start[keep], pieces.end[keep])


def difference(one: Intervals, other: Intervals) -> Intervals:
    """The times of `one` that do not lie in `other`."""
    pieces = _pieces(one, other)
    keep = contains(one, pieces.start) & ~contains(other, pieces.start)
    return union(pieces.start[keep], pieces.end[keep])


def gaps(busy: Intervals) -> Intervals:
    """The times between the intervals of a set, from its first beginning to its last end."""
    return Intervals(busy.end[:-1], busy.start[1:])


def covered_until(busy: Intervals, times: npt.ArrayLike) -> Times:
    """For each time, how many nanoseconds of the set lie before it."""
    at = np.asarray(times, np.int64)
    if not len(busy.start):
        return np.zeros(at.shape, np.int64)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(busy.end - busy.start)))
    index = np.searchsorted(busy.start, at, side="right")
    inside = np.minimum(at, busy.end[index - 1]) - busy.start[index - 1]
    return np.where(index > 0, before[index - 1] + inside, 0)


def covered(busy: Intervals, start: npt.ArrayLike, end: npt.ArrayLike) -> Times:
    """For each [start, end), how many of its nanoseconds lie in the set."""
    return covered_until(busy, end) - covered_until(busy, start)


def contains(busy: Intervals, times: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """For each time, whether it lies in the set."""
    at = np.asarray(times, np.int64)
    begun = np.searchsorted(busy.start, at, side="right")
    ended = np.searchsorted(busy.end, at, side="right")
    return begun > ended


def _pieces(one: Intervals, other: Intervals) -> Intervals:
    """All that lies between the first and the last limit of both sets, cut at each limit: no sorted set of its own."""
    limits = np.sort(np.concatenate((*one, *other)), kind="stable")  # np.unique hashes, which takes ten times as long
    limits = limits[np.append(True, limits[1:] > limits[:-1])[: len(limits)]]
    return Intervals(limits[:-1], limits[1:])
