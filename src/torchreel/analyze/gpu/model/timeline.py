"""What a thread was doing at each moment: the innermost of its calls."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from torchreel.analyze.gpu.model.calls import Calls
from torchreel.reel.columns import NOTHING, Ints


@dataclass(frozen=True)
class Timeline:
    """From `time[n]` to `time[n + 1]` the innermost call was `row[n]`, or NOTHING; before and after there was none."""

    time: Ints
    row: Ints

    @functools.cached_property
    def _rows(self) -> Ints:
        return np.append(self.row, NOTHING)

    @functools.cached_property
    def _times(self) -> Ints:
        return np.append(self.time, np.iinfo(np.int64).max)

    def at(self, moments: Ints) -> Ints:
        """The innermost call at each moment, or NOTHING."""
        place = np.searchsorted(self.time, moments, side="right") - 1
        return np.where(place >= 0, self._rows[place], NOTHING)

    def pieces(self, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Intervals cut where another call becomes the innermost.

        For each piece the number of its interval, its start, its end and the call, or NOTHING.
        """
        first = np.searchsorted(self.time, start, side="right")  # limits inside of an interval: first to last
        last = np.maximum(np.searchsorted(self.time, end, side="left"), first)
        counts = last - first + 1
        counts[end <= start] = 0
        which = np.repeat(np.arange(len(start)), counts)
        nth = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        times = self._times
        limit = first[which] + nth
        begins = np.where(nth == 0, start[which], times[limit - 1])
        ends = np.where(nth == counts[which] - 1, end[which], times[np.minimum(limit, len(times) - 1)])
        rows = np.where(limit > 0, self._rows[limit - 1], NOTHING)
        return which, begins, ends, rows


def timeline_of(calls: Calls, thread: int) -> Timeline:
    """The timeline of one thread. A call that ends after the one around it counts until its own end."""
    rows = np.flatnonzero((calls.thread == thread) & (calls.end > calls.start))
    left_in = _left_in(calls, rows)
    time = np.concatenate((calls.start[rows], calls.end[rows]))
    after = np.concatenate((rows, left_in))
    is_start = np.repeat((True, False), len(rows))
    # At one moment, inner calls end before outer ones, and all that ends does so before what begins.
    place = np.where(is_start, np.tile(rows, 2), -np.tile(rows, 2))
    order = np.lexsort((place, is_start, time))
    time, after = time[order], after[order]
    last = np.append(time[1:] != time[:-1], True) if len(time) else np.zeros(0, bool)
    return Timeline(time[last], after[last])


def _left_in(calls: Calls, rows: Ints) -> Ints:
    """The call that is innermost when each of these ends: the nearest around it that is still open."""
    found = calls.above[rows]
    ends = calls.end[rows]
    while True:
        closed = (found >= 0) & (calls.end[found] <= ends)
        if not closed.any():
            return found
        found = np.where(closed, calls.above[found], found)
