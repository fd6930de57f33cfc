"""The rows of a trace viewer: who owns each, its number and its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ProcessTrack:
    """A process, or a device that one uses, as the viewers group it."""

    index: int
    pid: int
    name: str
    label: str
    user: ProcessTrack | None = None
    device: str | None = None


@dataclass(frozen=True)
class Track:
    """A row of slices under a process; `owner` is the thread or stream on which there was no room for them."""

    process: ProcessTrack
    tid: int
    name: str
    owner: Track | None = None

    @property
    def order(self) -> int:
        """Puts the track beside its owner."""
        return self.tid if self.owner is None else self.owner.order


class Numbers:
    """Gives out numbers that are unique in a file.

    Viewers know a thread by its number alone, and in a reel of many hosts or containers the operating systems'
    numbers collide. The first owner keeps the number; the others get the next free one.
    """

    def __init__(self) -> None:
        self._taken: set[int] = {0}
        self._next = 1

    def give(self, wanted: int | None) -> int:
        number = wanted if wanted is not None and wanted > 0 else self._next
        if number in self._taken:
            number = self._next
        self._taken.add(number)
        self._next = max(self._next, number + 1)
        return number


def process_track(row: dict[str, Any], numbers: Numbers) -> ProcessTrack:
    """The track of one row of `processes`."""
    words = (row["command"] or "").split()
    program = words[0].rsplit("/", 1)[-1] if words else "python"
    name = program if row["rank"] is None else f"rank {row['rank']}: {program}"
    return ProcessTrack(row["process"], numbers.give(row["pid"]), name, "CPU")


def thread_track(process: ProcessTrack, row: dict[str, Any], main: bool, numbers: Numbers) -> Track:
    """The track of one row of `threads`; the main thread has its process's number, which is how viewers know it."""
    tid = process.pid if main else numbers.give(row["os_id"])
    label = f"thread {row['os_id'] if row['os_id'] is not None else tid}"
    return Track(process, tid, f"{label} ({row['name']})" if row["name"] else label)


def device_track(process: ProcessTrack, device: str, numbers: Numbers) -> ProcessTrack:
    """A device of a process, which viewers show as a process of its own."""
    kind, _, index = device.partition(":")
    label = f"GPU {index or 0}" if kind == "cuda" else device
    return ProcessTrack(
        process.index, numbers.give(int(index) if index.isdigit() else None), process.name, label, process, device
    )


def stream_track(device: ProcessTrack, stream: int | None, name: str | None, numbers: Numbers) -> Track:
    """A stream of a device; without a number it stands for all of the device."""
    shown = name or ("all streams" if stream is None else f"stream {stream}")
    return Track(device, numbers.give(stream), shown)


def extra_track(owner: Track, label: str, number: int, numbers: Numbers) -> Track:
    """A track for what does not fit on its owner's."""
    name = owner.name.split(" (", 1)[0]
    suffix = f" {number}" if number > 1 else ""
    return Track(owner.process, numbers.give(None), f"{name} ({label}{suffix})", owner)
