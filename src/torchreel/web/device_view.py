"""One device's memory as the page asks for it: an axis of time or of events, and what is read once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from torchreel.analyze.memory import DeviceMemory, MemoryReport, memory_report
from torchreel.errors import OptionError
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel

Ints = npt.NDArray[np.int64]

AXES = ("time", "events")
_MOST_DEVICES = 100_000


@dataclass(frozen=True)
class DeviceView:
    """Times are nanoseconds since the reel's beginning; an event is its number in the device's history."""

    viewed: ViewedReel
    number: int
    memory: DeviceMemory

    @functools.cached_property
    def report(self) -> MemoryReport:
        """All that `torchreel memory` says of it."""
        return memory_report(self.memory)

    @functools.cached_property
    def times(self) -> Ints:
        history = self.memory.history
        return history.times - self.viewed.origin if history.has_times else history.times

    @property
    def name(self) -> str:
        history = self.memory.history
        return f"{history.device}, {history.process_name}" if history.process_name else history.device

    @property
    def last(self) -> int:
        """The position of the last event; -1 if there is none."""
        return self.memory.history.events - 1

    @property
    def has_history(self) -> bool:
        """Whether there is more than the final state, as `torchreel memory` judges it."""
        return self.report.peak is not None

    @functools.cached_property
    def peak(self) -> int:
        """The position of the event after which most was allocated; the end where there is no history."""
        return int(self.memory.history.allocated.argmax()) - 1 if self.has_history else self.last

    def time_of(self, position: int) -> int | None:
        """When an event happened; None before the first one, and where the history has no times."""
        known = self.memory.history.has_times and 0 <= position < len(self.times)
        return int(self.times[position]) if known else None

    def axis(self, query: Query) -> str:
        """Time, unless events are asked for, by name or by their numbers, or there are no times."""
        wanted = query.choice("x", AXES, "events" if "from" in query or "to" in query else "time")
        return wanted if self.memory.history.has_times else "events"

    def position(self, query: Query) -> int:
        """The instant that a query names, by an event or a time; otherwise the peak, or that of the range in view.

        -1 is before all events.
        """
        if "event" in query:
            return query.number("event", -1, max(self.last, -1), -1)
        if "at" in query:
            return int(self.times.searchsorted(query.number("at", 0, 1 << 62, 0), "right")) - 1
        if not self.has_history or not any(name in query for name in ("begin", "from", "to")):
            return self.peak
        axis = self.axis(query)
        first, last = (int(n) for n in self.positions(axis, np.array(self.span(query, axis))))
        return first + int(self.memory.history.allocated[first : last + 1].argmax()) - 1

    def span(self, query: Query, axis: str) -> tuple[int, int]:
        """What is in view: times, or positions from the first to after the last."""
        given = self.viewed.range_if_given(query)
        origin = self.viewed.origin
        if axis == "time":
            begin, end = (0, self.viewed.end) if given is None else (given[0] - origin, given[1] - origin)
            return begin, max(end, begin + 1)
        first, last = 0, self.last + 1
        if "from" in query or "to" in query:
            first = query.number("from", 0, max(self.last, 0), 0)
            last = query.number("to", first, 1 << 62, self.last + 1)
        elif given is not None and self.memory.history.has_times:
            first, last = self.positions("time", np.array(given) - origin).tolist()
        last = min(max(last, first + 1), max(self.last + 1, 1))
        return min(first, last - 1), last

    def positions(self, axis: str, places: Ints) -> Ints:
        """The first event at or after each place of an axis; at the reel's end, after the last event."""
        if axis == "events":
            return np.clip(places, 0, self.last + 1)
        return np.where(places >= self.viewed.end, self.last + 1, self.times.searchsorted(places))

    def moment(self, position: int) -> dict[str, Any]:
        return {"event": position, "time": self.time_of(position)}


def views_of(viewed: ViewedReel) -> list[DeviceView]:
    """Of all devices, the greatest peak first."""
    known: tuple[list[DeviceMemory], list[DeviceView]] | None = viewed.__dict__.get("_device_views")
    if known is None or known[0] is not viewed.devices:
        found = [DeviceView(viewed, number, memory) for number, memory in enumerate(viewed.devices)]
        known = viewed.__dict__["_device_views"] = (viewed.devices, found)
    return known[1]


def view_of(viewed: ViewedReel, query: Query) -> DeviceView | None:
    """The device that a query names by its number; None where there is none at all."""
    number = query.number("device", 0, _MOST_DEVICES, 0)
    views = views_of(viewed)
    if not views:
        return None
    if number >= len(views):
        raise OptionError(f"There is no device {number}: there are {len(views)}.")
    return views[number]
