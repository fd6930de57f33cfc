"""A reel that is viewed: its extent in time, its lanes and its memory over time, each read when first asked for.

A reel that is still being recorded grows: `Viewing` gives another ViewedReel each time, at the cost of what is new.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchreel.analyze import Summary
from torchreel.analyze.connection import opened, reading
from torchreel.analyze.memory import DeviceMemory, device_memories
from torchreel.analyze.summary import Survey, survey
from torchreel.reel import Reel
from torchreel.reel.growing import GrowingReel
from torchreel.reel.row_count import rows_in
from torchreel.reel.tables import TABLES
from torchreel.web.calls import Labels
from torchreel.web.hidden_kinds import without_kinds
from torchreel.web.lane_set import LaneSet
from torchreel.web.lanes import Lane
from torchreel.web.memory_curve import Curve, curve_of
from torchreel.web.query import Query

if TYPE_CHECKING:
    import duckdb

_LOOK_EVERY_S = 0.5
# The tables of small questions: a table that is not opened costs nothing.
_ASKED = ("ops", "inputs", "modules", "threads", "stacks", "frames", "steps", "kernels", "flows", "counters")


class ViewedReel:
    """A reel as it was at one moment. Times that it gives and takes are nanoseconds since its beginning."""

    def __init__(self, reel: Reel, other: Reel | None = None, before: ViewedReel | None = None) -> None:
        """With `before`, what the reel was before it grew."""
        self.reel = reel
        self.other = other
        """A second reel to compare it with."""
        self.origin, self.end = _extent(self._survey) if before is None else before._extent_now(reel)
        """When it began, as time since the epoch, and how long it is."""
        self._lane_set: LaneSet = LaneSet(self.origin) if before is None else before._lane_set
        self._asking = threading.Lock()
        self._connection: contextlib.ExitStack | None = None
        self._filled: dict[str, bool] = {}
        self._without: tuple[tuple[str, ...], list[Lane]] | None = None

    def _extent_now(self, reel: Reel) -> tuple[int, int]:
        """The extent of the reel, now that it has grown: what it was at first stays where it is."""
        ends = [row["end_ns"] - self.origin for row in reel.process_rows() if row["end_ns"] is not None]
        return self.origin, max([self.end, *ends])

    def take_in(self) -> int:
        """Read what is new in the reel; gives when the earliest of it began."""
        return self._lane_set.renew(self.reel)

    @functools.cached_property
    def lanes(self) -> list[Lane]:
        """By number; those of a reel that grows keep theirs."""
        return self._lane_set.lanes_of(self.reel)

    def find(self, process: int, number: int) -> tuple[Lane, int] | None:
        """The lane of a call, and its place there."""
        for lane in self.lanes:
            if lane.process == process and lane.thread >= 0 and (at := lane.find(number)) is not None:
                return lane, at
        return None

    def lanes_without(self, kinds: tuple[str, ...]) -> list[Lane]:
        """The lanes without the calls of some kinds."""
        if not kinds:
            return self.lanes
        if self._without is None or self._without[0] != kinds:
            self._without = (kinds, without_kinds(self.lanes, self.labels, kinds))
        return self._without[1]

    @property
    def labels(self) -> Labels:
        return self._lane_set.labels

    @functools.cached_property
    def curve(self) -> Curve | None:
        """The memory of the process and device that had most of it; None if none was recorded."""
        fullest = self._survey.fullest
        return None if fullest is None else curve_of(self.reel, self.origin, *fullest)

    @functools.cached_property
    def devices(self) -> list[DeviceMemory]:
        """The history of each device's memory."""
        return list(device_memories(self.reel))

    @contextlib.contextmanager
    def asking(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that stays open, for small questions: one at a time."""
        with self._asking:
            if self._connection is None:
                self._connection = contextlib.ExitStack()
                self._asked = self._connection.enter_context(opened(self.reel, _ASKED))
                weakref.finalize(self, self._connection.close)
            with reading(self.reel):
                yield self._asked

    def range(self, query: Query) -> tuple[int, int]:
        """The range of time that a query gives, or the whole run, as times since the epoch."""
        begin = query.number("begin", 0, self.end, 0)
        end = query.number("end", begin, 1 << 62, self.end)
        return begin + self.origin, end + self.origin

    def range_if_given(self, query: Query) -> tuple[int, int] | None:
        return self.range(query) if "begin" in query else None

    @property
    def summary(self) -> Summary:
        return self._survey.summary

    @functools.cached_property
    def _survey(self) -> Survey:
        return survey(self.reel)

    @functools.cached_property
    def modules_by_id(self) -> dict[tuple[int, int], dict[str, Any]]:
        """By process and id: these are few, and to join them takes as long as to find a call."""
        return _by_id(self.reel, "modules", ["id", "path", "class"])

    @functools.cached_property
    def threads_by_id(self) -> dict[tuple[int, int], dict[str, Any]]:
        return _by_id(self.reel, "threads", ["id", "name"])

    @functools.cached_property
    def _steps(self) -> dict[int, tuple[list[int], dict[int, int], list[int]]]:
        """Of each process: when steps begin, in order, when each ends, and their numbers."""
        table = self.reel.table("steps").sort_by([("process", "ascending"), ("start_ns", "ascending")])
        found: dict[int, tuple[list[int], dict[int, int], list[int]]] = {}
        for row in table.to_pylist():
            begins, ends, numbers = found.setdefault(row["process"], ([], {}, []))
            begins.append(row["start_ns"])
            ends[row["step"]] = row["end_ns"]
            numbers.append(row["step"])
        return found

    def next_step_ends(self, process: int, moment: int) -> int | None:
        """When the step ends that follows the one of a moment, as times since the epoch; None if there is none."""
        begins, ends, numbers = self._steps.get(process, ([], {}, []))
        at = bisect.bisect_right(begins, moment) - 1
        return ends.get(numbers[at] + 1) if at >= 0 and ends[numbers[at]] > moment else None

    def has_rows(self, table: str) -> bool:
        if table not in self._filled:
            self._filled[table] = any(rows_in(part, TABLES[table]) for part in self.reel.parts)
        return self._filled[table]

    def threads(self) -> list[dict[str, Any]]:
        """The threads that have lanes: their names, and those of their processes. Streams of devices come with them."""
        rows: list[dict[str, Any]] = self.reel.table("threads").to_pylist()
        named = [
            {"process": row["process"], "id": row["id"], "os_id": row["os_id"], "name": row["name"], "stream": False}
            for row in rows
        ]
        return [*named, *self._lane_set.streams()]


class Viewing:
    """What the server shows: a reel, as it is now."""

    def __init__(self, reel: Reel, other: Reel | None = None) -> None:
        self._growing = GrowingReel(reel)
        self._lock = threading.Lock()
        self._looked = 0.0
        self._earliest: list[int] = []  # for each revision but the first, when what was new began
        self._now = ViewedReel(reel, other)

    def now(self) -> ViewedReel:
        return self._now

    def revision(self, since: int | None) -> dict[str, Any]:
        """Look whether the reel has grown: its revision, and when the earliest began that is new since another one."""
        with self._lock:
            if time.monotonic() - self._looked >= _LOOK_EVERY_S:
                if self._growing.refresh():
                    self._renew()
                self._looked = time.monotonic()
            new = self._earliest[since:] if since is not None else []
            return {
                "revision": len(self._earliest),
                "recording": self._growing.is_growing,
                "end": self._now.end,
                "changed_from": min(new, default=None),
            }

    def _renew(self) -> None:
        self._now = ViewedReel(self._growing.reel, self._now.other, self._now)
        self._earliest.append(self._now.take_in())


def _by_id(reel: Reel, table: str, columns: list[str]) -> dict[tuple[int, int], dict[str, Any]]:
    return {(row["process"], row["id"]): row for row in reel.table(table, columns).to_pylist()}


def _extent(found: Survey) -> tuple[int, int]:
    """When the reel begins, as time since the epoch, and how long it is."""
    if found.begin_ns is None or found.end_ns is None:
        return 0, 1
    return found.begin_ns, max(found.end_ns - found.begin_ns, 1)
