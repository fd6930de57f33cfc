"""The history of a device's memory: every block that lived, from when to when, and the levels that this makes.

Blocks that are older than the history count from its beginning. Levels are walked from there, those of reserved memory
back from the final state.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from torchreel.analyze.memory.model.blocks import (
    ACTIONS,
    ALLOC,
    COMPLETE,
    GROW,
    OOM,
    OTHER,
    PREEXISTING,
    SHRINK,
    Blocks,
    lives,
    with_final,
)
from torchreel.analyze.memory.model.columns import Ints, ints, texts, translate
from torchreel.reel import Reel

_COLUMNS = ["id", "time_ns", "thread", "device", "action", "addr", "size", "op", "stack", "category", "device_free"]


@dataclass(frozen=True)
class OutOfMemory:
    """An alloc that failed."""

    position: int
    bytes: int  # that were asked for, as the allocator rounds
    device_free: int | None  # bytes that the device still had
    stack: int


@dataclass(frozen=True)
class BlockHistory:
    """What one process's allocator did on one device."""

    process: int
    process_name: str
    device: str
    events: int
    allocs: int  # events that made a block: without any, there is only a final state
    start_ns: int | None  # when the history begins; None if it has no times
    times: Ints  # when each event happened; its number where the history has no times
    blocks: Blocks
    categories: list[str]
    segments: pa.Table  # of the final state; without rows where the allocator reserves nothing
    final: pa.Table  # the blocks of the final state
    ooms: tuple[OutOfMemory, ...]
    lost_events: int
    note: str | None
    unknown_frees: int  # blocks that were freed and whose size is not known
    _reserved_changes: Ints = field(repr=False)

    @property
    def has_times(self) -> bool:
        return self.start_ns is not None

    @property
    def reserves(self) -> bool:
        """Whether the allocator holds segments, of which blocks are parts."""
        return self.segments.num_rows > 0 or bool(self._reserved_changes.any())

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
        """Bytes of segments after each event, walked back from the final state."""
        changes = np.concatenate(([0], np.cumsum(self._reserved_changes)))
        level: Ints = int(ints(self.segments, "size").sum()) - changes[-1] + changes
        return level

    def _level(self, end: Ints) -> Ints:
        blocks, count = self.blocks, self.events
        changes = np.zeros(count + 2, np.int64)
        np.add.at(changes, blocks.start + 1, blocks.size)
        np.subtract.at(changes, np.minimum(end, count) + 1, blocks.size)
        return np.cumsum(changes)[: count + 1]

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


def histories(reel: Reel) -> list[BlockHistory]:
    """The history of each device of each process that has an event or a block."""
    allocs = reel.table("allocs", _COLUMNS)
    blocks, segments = reel.table("blocks"), reel.table("segments")
    processes = reel.process_rows()
    notes = {(row["process"], row["device"]): row for row in reel.table("devices").to_pylist()}
    found = []
    for process, device in _devices(allocs, blocks, segments):
        row = next((row for row in processes if row["process"] == process), {})
        said = notes.get((process, device), {})
        part = [_of(table, process, device) for table in (allocs, blocks, segments)]
        found.append(_history(process, device, row, said, *part))
    return found


def _devices(*tables: pa.Table) -> list[tuple[int, str]]:
    keys: set[tuple[int, str]] = set()
    for table in tables:
        distinct = table.select(["process", "device"]).group_by(["process", "device"]).aggregate([])
        keys.update((row["process"], row["device"] or "") for row in distinct.to_pylist())
    return sorted(keys)


def _of(table: pa.Table, process: int, device: str) -> pa.Table:
    names = pc.cast(table["device"], pa.string()).fill_null("")
    return table.filter(pc.and_(pc.equal(table["process"], process), pc.equal(names, device)))


def _history(
    process: int,
    device: str,
    row: dict[str, object],
    said: dict[str, object],
    allocs: pa.Table,
    final: pa.Table,
    segments: pa.Table,
) -> BlockHistory:
    order = np.argsort(ints(allocs, "id"), kind="stable")
    if len(order) and (np.diff(order) < 0).any():
        allocs = allocs.take(order)
    codes, words = texts(allocs, "action")
    action = translate(codes, words, ACTIONS, OTHER)
    category, categories = texts(allocs, "category")
    size = np.maximum(ints(allocs, "size"), 0)
    changes = np.where(action == GROW, size, np.where(action == SHRINK, -size, 0))
    if not changes.any() and device == "cpu" and _are_single_blocks(segments, final):
        segments = segments.slice(0, 0)
    start_ns, times = _times(allocs, row)
    unknown = (action == COMPLETE) & (ints(allocs, "size") < 0)
    return BlockHistory(
        process=process,
        process_name=str(row.get("name") or ""),
        device=device,
        events=allocs.num_rows,
        allocs=int(((action == ALLOC) | (action == PREEXISTING)).sum()),
        start_ns=start_ns,
        times=times,
        blocks=with_final(lives(allocs, action, size, category), final, allocs.num_rows),
        categories=categories,
        segments=segments,
        final=final,
        ooms=_ooms(allocs, action, size),
        lost_events=_number(said.get("lost_events")) + _number(row.get("lost_events")),
        note=str(said["note"]) if said.get("note") else None,
        unknown_frees=int(unknown.sum()),
        _reserved_changes=changes,
    )


def _are_single_blocks(segments: pa.Table, final: pa.Table) -> bool:
    """Whether each segment is one block: so a snapshot shows the system's allocator, which has no segments."""
    blocks = sorted(zip(ints(final, "address"), ints(final, "size"), strict=True))
    return blocks == sorted(zip(ints(segments, "address"), ints(segments, "size"), strict=True))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _times(allocs: pa.Table, row: dict[str, object]) -> tuple[int | None, Ints]:
    """When the history begins, and the time of each event; numbers of events where the file has no times."""
    column = allocs["time_ns"]
    if not len(column) or column.null_count:
        return None, np.arange(len(column), dtype=np.int64)
    times = ints(allocs, "time_ns")
    first = int(times[0])
    began = row.get("start_ns")
    return (min(first, began) if isinstance(began, int) and began > 0 else first), np.maximum.accumulate(times)


def _ooms(allocs: pa.Table, action: Ints, size: Ints) -> tuple[OutOfMemory, ...]:
    free, stack = ints(allocs, "device_free"), ints(allocs, "stack")
    return tuple(
        OutOfMemory(int(at), int(size[at]), int(free[at]) if free[at] >= 0 else None, int(stack[at]))
        for at in np.flatnonzero(action == OOM)
    )
