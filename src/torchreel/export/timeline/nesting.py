"""Lays the calls of a thread on lanes so that on each lane every slice is strictly nested.

Trace viewers stack slices by time alone. Two slices of one lane that overlap in part cannot be stacked, and
Perfetto drops the later one without a word to the user; a slice of no length falls out of the call that holds it,
and swallows its neighbour. So, before anything is written:

- A range that is asynchronous, or that ended in another order than it began, goes to an extra lane.
- A range that begins or ends within a Python call that it outlives, such as `__enter__`, keeps its place if it is the
  longer one: the Python call goes to an extra lane.
- A call too deep for Perfetto (it keeps 512 levels and drops the rest) goes to an extra lane.
- A slice of no length becomes one nanosecond long, and what touches it moves by that much.

Everything else keeps its place and its time.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

# Perfetto keeps 512 levels; some are left for the instants on top of the deepest call.
MAX_DEPTH = 500

MAIN = 0

# How readily a slice leaves its thread's own lane when it and another cannot both be there.
FIXED, PYTHON, RANGE = 0, 1, 2

_COLUMNS = ("id", "lane", "start_ns", "dur_ns")


class Slice:
    """A call to be laid; `floor` is the earliest time at which what comes next inside it may begin.

    `parent` is the id of the call that made it, or a number that is no id.
    """

    __slots__ = ("deep", "end", "floor", "id", "kind", "parent", "shown", "start")

    def __init__(self, id: int, parent: int, start: int, end: int, kind: int) -> None:
        self.id = id
        self.parent = parent
        self.start = start
        self.end = end
        self.kind = kind
        self.deep = False
        self.shown = start
        self.floor = start

    def yields_to(self, other: Slice) -> bool:
        """Whether this one moves when it overlaps with one that began before it."""
        if self.kind == FIXED or other.kind == FIXED:
            return self.kind != FIXED or other.kind == FIXED
        return self.end - self.start <= other.end - other.start

    @property
    def label(self) -> str:
        """What the lane that it is moved to is for."""
        if self.deep:
            return "deeper calls"
        return "overlapping ranges" if self.kind == RANGE else "overlapping calls"


@dataclass
class Repairs:
    """The calls that do not stay where the reel has them: their lane and the time that is shown."""

    id: array[int] = field(default_factory=lambda: array("q"))
    lane: array[int] = field(default_factory=lambda: array("q"))
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    dur_ns: array[int] = field(default_factory=lambda: array("q"))

    def add(self, id: int, lane: int, start_ns: int, dur_ns: int) -> None:
        self.id.append(id)
        self.lane.append(lane)
        self.start_ns.append(start_ns)
        self.dur_ns.append(dur_ns)

    def table(self, process: int) -> pa.Table:
        """The same as a table with the process in front, for joins."""
        columns = {name: pa.array(np.asarray(getattr(self, name), dtype=np.int64)) for name in _COLUMNS}
        return pa.table({"process": pa.repeat(pa.scalar(process, pa.int32()), len(self.id)), **columns})


class Lane:
    """One row of slices. They come in the order in which they began."""

    def __init__(self, number: int, label: str, repairs: Repairs) -> None:
        self.number = number
        self.label = label
        self._repairs = repairs
        self._open: list[Slice] = []
        self._floor = -(2**63)

    def close_before(self, slice: Slice) -> None:
        """Close what ended before this slice begins; a call of no length may begin at the end of its parent."""
        stack = self._open
        while stack and (top := stack[-1]).end <= slice.start:
            if top.id == slice.parent and slice.end <= top.end:
                break
            self._close()

    def obstacle(self, slice: Slice) -> Slice | None:
        """The innermost open slice, if this one would outlive it."""
        if self._open and self._open[-1].end < slice.end:
            return self._open[-1]
        return None

    @property
    def full(self) -> bool:
        return len(self._open) >= MAX_DEPTH

    def push(self, slice: Slice) -> None:
        floor = self._open[-1].floor if self._open else self._floor
        if slice.start < floor:
            slice.shown = floor
        slice.floor = slice.shown
        self._open.append(slice)

    def take_out(self) -> Slice:
        """Remove the innermost open slice, as if it had never been here."""
        slice = self._open.pop()
        self._raise_floor(slice.floor)
        slice.shown = slice.start
        return slice

    def close_all(self) -> None:
        while self._open:
            self._close()

    def _close(self) -> None:
        slice = self._open.pop()
        end = max(slice.end, slice.floor, slice.shown + 1)
        self._raise_floor(end)
        if self.number != MAIN or slice.shown != slice.start or end != slice.end:
            self._repairs.add(slice.id, self.number, slice.shown, end - slice.shown)

    def _raise_floor(self, floor: int) -> None:
        if self._open:
            self._open[-1].floor = max(self._open[-1].floor, floor)
        else:
            self._floor = max(self._floor, floor)


class Nesting:
    """The lanes of one thread. Give it the calls in the order in which they began, then finish it."""

    def __init__(self, repairs: Repairs) -> None:
        self._repairs = repairs
        self._main = Lane(MAIN, "", repairs)
        self._moved: list[Slice] = []
        # Calls that were moved although they are no ranges: what they called goes with them.
        self._strays: dict[int, Slice] = {}

    def add(self, slice: Slice, apart: bool) -> None:
        """Lay one call; `apart` sends it to an extra lane even if it would fit."""
        stray = self._strays.get(slice.parent)
        if apart or stray is not None:
            slice.deep = stray is not None and stray.deep
            self._move(slice)
            return
        lane = self._main
        lane.close_before(slice)
        while (other := lane.obstacle(slice)) is not None:
            if slice.yields_to(other):
                self._move(slice)
                return
            self._move(lane.take_out())
        if lane.full:
            slice.deep = True
            self._move(slice)
            return
        lane.push(slice)

    def _move(self, slice: Slice) -> None:
        self._moved.append(slice)
        if slice.kind != RANGE:
            self._strays[slice.id] = slice

    def finish(self) -> list[str]:
        """Lay what was moved, on as few lanes as a greedy choice finds; returns what each extra lane is for."""
        self._main.close_all()
        self._moved.sort(key=lambda slice: (slice.start, slice.id))
        extra: list[Lane] = []
        for slice in self._moved:
            self._lane_for(slice, extra).push(slice)
        for lane in extra:
            lane.close_all()
        return [lane.label for lane in extra]

    def _lane_for(self, slice: Slice, extra: list[Lane]) -> Lane:
        for lane in extra:
            if lane.label != slice.label:
                continue
            lane.close_before(slice)
            if lane.obstacle(slice) is None and not lane.full:
                return lane
        lane = Lane(len(extra) + 1, slice.label, self._repairs)
        extra.append(lane)
        return lane


def strictly_nested(start: np.ndarray, duration: np.ndarray, depth: np.ndarray) -> bool:
    """Whether slices, in the order in which they began, can all stay: nothing overlaps, is empty or is too deep.

    True only if the depths are the right ones too: then those of one depth follow one another, and each lies within
    the one before it that is one less deep. A recording without asynchronous ranges passes, so the work above, which
    takes some microseconds per call, is for the exceptions.
    """
    if len(start) == 0:
        return True
    if duration.min() < 1 or depth.min() < 0 or depth.max() >= MAX_DEPTH:
        return False
    order = np.argsort(depth, kind="stable")
    end = start + duration
    above: np.ndarray | None = None
    for level in np.split(order, np.cumsum(np.bincount(depth))[:-1]):
        if np.any(end[level[:-1]] > start[level[1:]]):
            return False
        if above is not None and len(level):
            holder = np.searchsorted(above, level) - 1
            if holder.min() < 0 or np.any(end[above[holder]] < end[level]):
                return False
        above = level
    return True
