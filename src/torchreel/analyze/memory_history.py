"""The history of a device's memory: every block that lived, from when to when, and the levels that this makes.

Events are paired by address, so that a history that begins in the middle of a run, or that lost events, is read as far
as it tells: blocks that are freed without having been made, and blocks of the final state that no event made, are older
than the history and count from its beginning. Levels are walked from there, those of reserved memory back from the end.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from torchreel.analyze.memory_columns import NOTHING, Ints, ints, texts, translate
from torchreel.reel import Reel

_OTHER, _ALLOC, _PREEXISTING, _REQUEST, _COMPLETE, _GROW, _SHRINK, _OOM = range(8)
_ACTIONS = {
    "alloc": _ALLOC,
    "preexisting": _PREEXISTING,
    "free_requested": _REQUEST,
    "free": _COMPLETE,
    "free_completed": _COMPLETE,
    "segment_alloc": _GROW,
    "segment_map": _GROW,
    "segment_free": _SHRINK,
    "segment_unmap": _SHRINK,
    "oom": _OOM,
}
_COLUMNS = ["id", "time_ns", "thread", "device", "action", "addr", "size", "op", "stack", "category", "device_free"]
OLD = -1  # the position of a block that is older than the history


@dataclass(frozen=True)
class OutOfMemory:
    """An alloc that failed."""

    position: int
    bytes: int  # that were asked for, as the allocator rounds
    device_free: int | None  # bytes that the device still had
    stack: int


@dataclass(frozen=True)
class Blocks:
    """One item per block that lived. Positions count the device's events; a block lives in start <= position < end."""

    addr: Ints
    size: Ints  # bytes that the program asked for
    start: Ints  # the event that made it, or OLD
    end: Ints  # the event that freed it, or the number of events
    done: Ints  # the event after which its memory was free again: later than end where a stream still used it
    op: Ints
    stack: Ints
    thread: Ints
    category: Ints  # number in History.categories, as recorded, or NOTHING

    def __len__(self) -> int:
        return len(self.addr)


@dataclass(frozen=True)
class History:
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


def histories(reel: Reel) -> list[History]:
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
) -> History:
    order = np.argsort(ints(allocs, "id"), kind="stable")
    if len(order) and (np.diff(order) < 0).any():
        allocs = allocs.take(order)
    codes, words = texts(allocs, "action")
    action = translate(codes, words, _ACTIONS, _OTHER)
    category, categories = texts(allocs, "category")
    size = np.maximum(ints(allocs, "size"), 0)
    changes = np.where(action == _GROW, size, np.where(action == _SHRINK, -size, 0))
    if not changes.any() and device == "cpu" and _are_single_blocks(segments, final):
        segments = segments.slice(0, 0)
    start_ns, times = _times(allocs, row)
    unknown = (action == _COMPLETE) & (ints(allocs, "size") < 0)
    return History(
        process=process,
        process_name=str(row.get("name") or ""),
        device=device,
        events=allocs.num_rows,
        allocs=int(((action == _ALLOC) | (action == _PREEXISTING)).sum()),
        start_ns=start_ns,
        times=times,
        blocks=_with_final(_lives(allocs, action, size, category), final, allocs.num_rows),
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
        for at in np.flatnonzero(action == _OOM)
    )


def _lives(allocs: pa.Table, action: Ints, size: Ints, category: Ints) -> Blocks:
    """Cut the events of each address into lives: a life begins with an alloc, or after a free that was completed."""
    position = np.flatnonzero((action >= _ALLOC) & (action <= _COMPLETE))
    address = ints(allocs, "addr")[position]
    order = np.argsort(address, kind="stable")
    position, address = position[order], address[order]
    kind = action[position]
    made = (kind == _ALLOC) | (kind == _PREEXISTING)
    same = np.zeros(len(position), bool)
    same[1:] = address[1:] == address[:-1]
    begins = ~same | made
    begins[1:] |= (kind[:-1] == _COMPLETE) | ((kind[1:] == _REQUEST) & (kind[:-1] == _REQUEST))
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(position)) - 1 if len(first) else first
    count = len(action)

    # What is not known of a life is bounded by its neighbours at the same address.
    follows = np.zeros(len(first), bool)
    follows[1:] = address[first[1:]] == address[first[:-1]]
    before = np.where(follows, position[np.maximum(first - 1, 0)], OLD)
    after = np.full(len(first), count, np.int64)
    after[:-1] = np.where(follows[1:], position[first[1:]], count)

    ends = first + made[first]  # the first event of the life that is no alloc
    ended = ends <= last
    completed = kind[last] == _COMPLETE
    row = position[first]
    start = np.where(kind[first] == _ALLOC, row, np.where(kind[first] == _PREEXISTING, OLD, before))
    end = np.where(ended, position[np.minimum(ends, last)], after)
    done = np.where(completed, position[last], after)
    known = made[first]
    origins = {name: np.where(known, ints(allocs, name)[row], NOTHING) for name in ("op", "thread")}
    # A free carries the stack of its alloc, below the context "all"; it is all that is known of a block that is older.
    return Blocks(
        addr=address[first],
        size=size[row],
        start=start,
        end=end,
        done=np.maximum(done, end),
        op=origins["op"],
        stack=ints(allocs, "stack")[row],
        thread=origins["thread"],
        category=category[row],
    )


def _with_final(lives: Blocks, final: pa.Table, count: int) -> Blocks:
    """Add the blocks of the final state that no event made, and the stacks that only the final state knows."""
    states, words = texts(final, "state")
    active = translate(states, words, {"active_allocated": 1, "active_pending_free": 2}, 0)
    rows = np.flatnonzero(active > 0)
    address = ints(final, "address")[rows]
    # The last life at each address: they are sorted by address, and in each by position.
    last = np.searchsorted(lives.addr, address, side="right") - 1
    known = (last >= 0) & (lives.addr[last] == address) if len(lives) else np.zeros(len(rows), bool)
    living = known.copy()
    living[known] = lives.done[last[known]] >= count
    stack = ints(final, "stack")[rows]
    stacks = lives.stack.copy()
    found = last[living]
    stacks[found] = np.where(stacks[found] == NOTHING, stack[living], stacks[found])

    new = ~living
    requested = ints(final, "requested")[rows]
    size = np.where(requested >= 0, requested, ints(final, "size")[rows])[new]
    start = np.full(int(new.sum()), OLD, np.int64)
    start[known[new]] = lives.done[last[new & known]]  # its alloc is missing, after the free of the one before
    pending = active[rows][new] == 2
    nothing = np.full(len(size), NOTHING, np.int64)
    alive = np.full(len(size), count, np.int64)
    return Blocks(
        addr=np.append(lives.addr, address[new]),
        size=np.append(lives.size, size),
        start=np.append(lives.start, start),
        end=np.append(lives.end, np.where(pending, start, alive)),
        done=np.append(lives.done, alive),
        op=np.append(lives.op, nothing),
        stack=np.append(stacks, stack[new]),
        thread=np.append(lives.thread, nothing),
        category=np.append(lives.category, nothing),
    )
