"""AllocatorHistory: what an allocator did on one device, every block that lived, and the levels that this makes.

Blocks that are older than the history count from its beginning. Levels are walked from there, those of reserved memory
back from the final state. What follows from the events is computed when it is first asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.reel.allocator_history.actions import CODES, FREES_BLOCK, MAKES_BLOCK, OOM, OTHER, RELEASES, RESERVES
from torchreel.reel.allocator_history.blocks import Blocks, blocks
from torchreel.reel.columns import Ints, ints, texts, translate
from torchreel.reel.reel import Reel

_COLUMNS = ("id", "time_ns", "thread", "device", "action", "addr", "size", "op", "stack", "category", "device_free")


@dataclass(frozen=True)
class OutOfMemory:
    """An alloc that failed."""

    position: int
    bytes: int  # that were asked for, as the allocator rounds
    device_free: int | None  # bytes that the device still had
    stack: int


@dataclass(frozen=True)
class AllocatorHistory:
    """What one process's allocator did on one device. Positions count its events."""

    process: int
    device: str
    event_rows: pa.Table = field(repr=False)  # rows of allocs, in their order
    segment_rows: pa.Table = field(repr=False)  # of the final state, as the file has them
    final: pa.Table = field(repr=False)  # the blocks of the final state
    process_row: Mapping[str, Any] = field(repr=False)
    device_row: Mapping[str, Any] = field(repr=False)

    @property
    def process_name(self) -> str:
        return str(self.process_row.get("name") or "")

    @property
    def events(self) -> int:
        return int(self.event_rows.num_rows)

    @functools.cached_property
    def action(self) -> Ints:
        """The code of each event's action."""
        return translate(*texts(self.event_rows, "action"), CODES, OTHER)

    @functools.cached_property
    def size(self) -> Ints:
        """The bytes of each event; 0 where they are not known."""
        return np.maximum(ints(self.event_rows, "size"), 0)

    @functools.cached_property
    def allocs(self) -> int:
        """How many events made a block: without any, there is only a final state."""
        return int(np.isin(self.action, MAKES_BLOCK).sum())

    @functools.cached_property
    def blocks(self) -> Blocks:
        return blocks(self.event_rows, self.action, self.size, self._category[0], self.final)

    @property
    def categories(self) -> list[str]:
        """The categories as recorded, by number."""
        return self._category[1]

    @functools.cached_property
    def _category(self) -> tuple[Ints, list[str]]:
        return texts(self.event_rows, "category")

    @property
    def start_ns(self) -> int | None:
        """When the history begins; None if it has no times."""
        return self._times[0]

    @property
    def times(self) -> Ints:
        """When each event happened; its number where the history has no times."""
        return self._times[1]

    @functools.cached_property
    def _times(self) -> tuple[int | None, Ints]:
        column = self.event_rows["time_ns"]
        if not len(column) or column.null_count:
            return None, np.arange(len(column), dtype=np.int64)
        times = ints(self.event_rows, "time_ns")
        first, began = int(times[0]), self.process_row.get("start_ns")
        return (min(first, began) if isinstance(began, int) and began > 0 else first), np.maximum.accumulate(times)

    @property
    def has_times(self) -> bool:
        return self.start_ns is not None

    @functools.cached_property
    def segments(self) -> pa.Table:
        """The segments of the final state; without rows where the allocator reserves nothing."""
        whole = not self._changes.any() and self.device == "cpu" and _are_single_blocks(self.segment_rows, self.final)
        return self.segment_rows.slice(0, 0) if whole else self.segment_rows

    @property
    def reserves(self) -> bool:
        """Whether the allocator holds segments, of which blocks are parts."""
        return self.segments.num_rows > 0 or bool(self._changes.any())

    @functools.cached_property
    def allocated(self) -> Ints:
        """Bytes allocated after each event; the first item is before all of them."""
        return self._level(self.blocks.end)

    @functools.cached_property
    def active(self) -> Ints:
        """The same, with blocks that are freed and still in use by a stream."""
        return self._level(self.blocks.done)

    @functools.cached_property
    def reserved(self) -> Ints:
        """Bytes of segments after each event; the first item is before all of them."""
        return reserved_levels(self._changes, int(ints(self.segments, "size").sum()))

    @functools.cached_property
    def _changes(self) -> Ints:
        return reserved_changes(self.action, self.size)

    def _level(self, end: Ints) -> Ints:
        blocks, count = self.blocks, self.events
        changes = np.zeros(count + 2, np.int64)
        np.add.at(changes, blocks.start + 1, blocks.size)
        np.subtract.at(changes, np.minimum(end, count) + 1, blocks.size)
        return np.cumsum(changes)[: count + 1]

    @functools.cached_property
    def ooms(self) -> tuple[OutOfMemory, ...]:
        free, stack = ints(self.event_rows, "device_free"), ints(self.event_rows, "stack")
        return tuple(
            OutOfMemory(int(at), int(self.size[at]), int(free[at]) if free[at] >= 0 else None, int(stack[at]))
            for at in np.flatnonzero(self.action == OOM)
        )

    @property
    def lost_events(self) -> int:
        return _number(self.device_row.get("lost_events")) + _number(self.process_row.get("lost_events"))

    @property
    def note(self) -> str | None:
        return str(self.device_row["note"]) if self.device_row.get("note") else None

    @functools.cached_property
    def unknown_frees(self) -> int:
        """How many blocks were freed whose size is not known."""
        return int((np.isin(self.action, FREES_BLOCK) & (ints(self.event_rows, "size") < 0)).sum())

    def alive(self, position: int) -> Ints:
        """The blocks that live after an event, by number."""
        return np.flatnonzero((self.blocks.start <= position) & (self.blocks.end > position))

    def positions(self, times: Ints) -> Ints:
        """The first event at or after each time."""
        return np.searchsorted(self.times, times, side="left")

    def time_of(self, position: int) -> int | None:
        """When an event happened; the beginning of the history for OLD."""
        if self.start_ns is None:
            return None
        return self.start_ns if position < 0 or not self.events else int(self.times[min(position, self.events - 1)])


def reserved_changes(action: Ints, size: Ints) -> Ints:
    """By how many bytes each event changes the reserved memory."""
    return np.where(np.isin(action, RESERVES), size, np.where(np.isin(action, RELEASES), -size, 0))


def reserved_levels(changes: Ints, final: int) -> Ints:
    """Reserved bytes before all events and after each, walked back from the final state."""
    changed = np.concatenate(([0], np.cumsum(changes)))
    levels: Ints = final - changed[-1] + changed
    return levels


def histories(reel: Reel, more: Iterable[str] = ()) -> list[AllocatorHistory]:
    """The history of each device of each process that has an event, a segment or a block.

    `more` names columns of allocs that the caller reads in `event_rows`.
    """
    import pyarrow.compute as pc  # slow to import, and few questions need it

    tables = {name: reel.table(name) for name in ("blocks", "segments", "devices", "processes")}
    tables["allocs"] = reel.table("allocs", [*_COLUMNS, *more])
    found = []
    for process in (part.index for part in reel.parts):
        parts = {name: table.filter(pc.equal(table["process"], process)) for name, table in tables.items()}
        found.extend(histories_of(parts, process))
    return found


def histories_of(tables: Mapping[str, pa.Table], process: int = 0) -> list[AllocatorHistory]:
    """The histories of the devices in the tables of one process."""
    allocs, segments, final = (tables[name] for name in ("allocs", "segments", "blocks"))
    process_row: dict[str, Any] = next(iter(tables["processes"].to_pylist()), {})
    device_rows = {row["device"]: row for row in reversed(tables["devices"].to_pylist())}
    return [
        AllocatorHistory(
            process=process,
            device=device,
            event_rows=_in_order(_of_device(allocs, device)),
            segment_rows=_of_device(segments, device),
            final=_of_device(final, device),
            process_row=process_row,
            device_row=device_rows.get(device, {}),
        )
        for device in sorted({name or "" for table in (allocs, segments, final) for name in _devices(table)})
    ]


def _devices(table: pa.Table) -> list[str | None]:
    import pyarrow.compute as pc  # slow to import, and few questions need it

    names: list[str | None] = pc.unique(table["device"]).to_pylist()
    return names


def _of_device(table: pa.Table, device: str) -> pa.Table:
    import pyarrow.compute as pc  # slow to import, and few questions need it

    return table.filter(pc.equal(pc.cast(table["device"], pa.string()).fill_null(""), device))


def _in_order(allocs: pa.Table) -> pa.Table:
    order = np.argsort(ints(allocs, "id"), kind="stable")
    return allocs.take(order) if len(order) and (np.diff(order) < 0).any() else allocs


def _are_single_blocks(segments: pa.Table, final: pa.Table) -> bool:
    """Whether each segment is one block: so a snapshot shows the system's allocator, which has no segments."""
    blocks = sorted(zip(ints(final, "address"), ints(final, "size"), strict=True))
    return blocks == sorted(zip(ints(segments, "address"), ints(segments, "size"), strict=True))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
