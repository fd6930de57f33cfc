"""The devices of a snapshot: each device of each process of a reel, with its place in device_traces."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from torchreel.export.snapshot.rows import ProcessTables
from torchreel.reel import Reel

_SINGLE_BLOCKS = "The system's allocator keeps no segments: each block is shown as a segment of its own."
_MAX_INDEX = 1023
_SAID = ["device", "index", "total", "fraction", "lost_events", "note"]


@dataclass(frozen=True)
class Device:
    """One device of one process. `label` tells it from those of other processes."""

    process: int
    name: str
    label: str
    index: int
    total: int | None
    fraction: float | None
    lost_events: int | None
    note: str | None


def devices_of(reel: Reel) -> list[Device]:
    """Every device of which the reel holds anything, by process."""
    processes = [ProcessTables(reel, part.index) for part in reel.parts]
    several = sum(1 for process in processes if _used(process)) > 1
    found: list[Device] = []
    for process, part in zip(processes, reel.parts, strict=True):
        said = {row[0]: row[1:] for row in process.rows("devices", _SAID) if row[0] is not None}
        lost = next((count for (count,) in process.rows("processes", ["lost_events"]) if count), None)
        indices = _indices(
            {name: None if several else row[0] for name, row in said.items()}, _used(process), len(found)
        )
        for name, index in indices.items():
            note = None if _has_segments(process, name) else _SINGLE_BLOCKS
            rest = said[name][1:] if name in said else (None, None, lost, note)
            found.append(Device(part.index, name, f"{part.name} {name}" if several else name, index, *rest))
    return found


def _indices(said: dict[str, int | None], used: list[str], first: int) -> dict[str, int]:
    """The place of each device in device_traces: the one that the reel says, or else the first that is free."""
    indices: dict[str, int] = {}
    for name, index in sorted(said.items(), key=lambda item: item[1] or 0):
        if index is not None and 0 <= index <= _MAX_INDEX and index not in indices.values():
            indices[name] = index
    for name in used:
        if name not in indices:
            taken = set(indices.values())
            indices[name] = next(index for index in itertools.count(first) if index not in taken)
    return dict(sorted(indices.items(), key=lambda item: item[1]))


def _used(process: ProcessTables) -> list[str]:
    """The devices with events, blocks or segments, in the order of their names."""
    names: set[str] = set()
    for table in ("devices", "allocs", "blocks", "segments"):
        names |= set(process.table(table, ["device"])["device"].unique().to_pylist())
    return sorted(name for name in names if name is not None)


def _has_segments(process: ProcessTables, device: str) -> bool:
    return device in process.table("segments", ["device"])["device"].unique().to_pylist()
