"""A memory snapshot and a trace of the same run, joined event by event.

A trace knows the op of each event of the allocator, a snapshot its stack. Both saw the same events, so the k-th that
made or freed a block of one size at one address is the same in both. Where one of them began earlier, ended later or
lost events, their times decide: of those that fit, in their order, the nearest. Without times such events stay alone.

A snapshot may have the bytes that were asked for where the trace has those of the block, which are a multiple of 512.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.connection import reading
from torchreel.analyze.memory.model.stacks import Stacks, stacks_of
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints, ints, rows_of, texts

_BLOCK = 512
# What a trace calls a free, a snapshot has as the moment at which it was asked for.
_ACTIONS = {"alloc": 0, "free": 1, "free_requested": 1}

_SCHEMA = pa.schema(
    [
        ("process", pa.int32()),  # of the trace
        ("device", pa.string()),
        ("action", pa.string()),  # alloc or free
        ("addr", pa.int64()),
        ("size", pa.int64()),  # as the trace has it
        ("trace_alloc", pa.int64()),  # id in allocs of the trace
        ("snapshot_alloc", pa.int64()),  # id in allocs of the snapshot
        ("op", pa.string()),  # the trace's; null where none was open
        ("line", pa.string()),  # of the snapshot's stack; null where none was recorded
    ]
)


@dataclass(frozen=True)
class SnapshotJoin:
    """A row per event that both have, in the trace's order, and how many of each are there."""

    rows: pa.Table
    trace_events: int
    snapshot_events: int
    notes: tuple[str, ...]

    @property
    def matched(self) -> int:
        return int(self.rows.num_rows)


@dataclass(frozen=True)
class _Events:
    """Events of devices' allocators, in their order."""

    id: Ints
    process: Ints
    time: Ints
    device: list[str]
    action: Ints
    addr: Ints
    size: Ints
    op: Ints
    stack: Ints

    def keys(self) -> dict[tuple[str, int, int, int], list[int]]:
        """The rows of each device, action, address and size of a block."""
        found: dict[tuple[str, int, int, int], list[int]] = {}
        blocks = -(-self.size // _BLOCK) * _BLOCK
        values = zip(self.device, self.action.tolist(), self.addr.tolist(), blocks.tolist(), strict=True)
        for row, key in enumerate(values):
            found.setdefault(key, []).append(row)
        return found


def snapshot_join(trace: Reel, snapshot: Reel) -> SnapshotJoin:
    """Join the allocator's events of a trace's reel with those of a snapshot's reel, of one run on one rank.

    `rows` has process, device, action, addr, size, trace_alloc, snapshot_alloc, op and line.
    """
    ours, theirs = _events(trace), _events(snapshot)
    known = theirs.keys()
    pairs = [pair for key, rows in ours.keys().items() for pair in _paired(ours, rows, theirs, known.get(key, []))]
    pairs.sort()
    names = {(row["process"], row["id"]): row["name"] for row in _ops(trace, ours)}
    stacks = {int(process): stacks_of(snapshot, int(process)) for process in np.unique(theirs.process)}
    rows = [_row(ours, theirs, one, other, names, stacks) for one, other in pairs]
    return SnapshotJoin(
        rows=pa.Table.from_pylist(rows, schema=_SCHEMA),
        trace_events=len(ours.id),
        snapshot_events=len(theirs.id),
        notes=tuple(_notes(len(ours.id), len(theirs.id), len(rows))),
    )


def _notes(ours: int, theirs: int, matched: int) -> Iterator[str]:
    if not ours:
        yield "The trace has no events of a device's allocator with addresses: give torch.profiler profile_memory=True."
    if not theirs:
        yield "The snapshot has no history of a device: record one from before the run, as docs/snapshots.md says."
    if ours and theirs:
        yield f"{matched:,} of {ours:,} events of the trace are in the snapshot, which has {theirs:,}."
        if not matched:
            yield "No block has the same address and size in both: they are not of one run, or not of one rank."


def _events(reel: Reel) -> _Events:
    """What devices' allocators gave and took, of all processes."""
    with reading(reel, ("allocs",)):
        table = reel.table("allocs", ["id", "time_ns", "device", "action", "addr", "size", "op", "stack"])
    device, devices = texts(table, "device")
    action, actions = texts(table, "action")
    kind = np.array([*(_ACTIONS.get(name, NOTHING) for name in actions), NOTHING])[action]
    of_device = np.array([*(name not in ("", "cpu") for name in devices), False])[device]
    addr, size = ints(table, "addr"), ints(table, "size")
    keep = np.flatnonzero(of_device & (kind >= 0) & (addr >= 0) & (size >= 0))
    process, number = ints(table, "process"), ints(table, "id")
    keep = keep[np.lexsort((number[keep], process[keep]))]
    return _Events(
        id=number[keep],
        process=process[keep],
        time=ints(table, "time_ns")[keep],
        device=[devices[code] for code in device[keep].tolist()],
        action=kind[keep],
        addr=addr[keep],
        size=size[keep],
        op=ints(table, "op")[keep],
        stack=ints(table, "stack")[keep],
    )


def _paired(ours: _Events, rows: list[int], theirs: _Events, others: list[int]) -> Iterator[tuple[int, int]]:
    """Events of one key: the k-th is the k-th if there are as many, else the nearest in time, in order."""
    if len(rows) == len(others):
        yield from zip(rows, others, strict=True)
        return
    if not others or (ours.time[rows] < 0).any() or (theirs.time[others] < 0).any():
        return
    few, many = (rows, others) if len(rows) < len(others) else (others, rows)
    times = [(ours if events is rows else theirs).time[events].tolist() for events in (few, many)]
    for one, other in zip(few, _nearest(*times), strict=True):
        pair = (one, many[other])
        yield pair if few is rows else pair[::-1]


def _nearest(few: list[int], many: list[int]) -> list[int]:
    """For each of a few times the place of one among many, in order and none twice, each as near as that allows."""
    places: list[int] = []
    first = 0
    for number, time in enumerate(few):
        last = len(many) - (len(few) - number)  # enough must be left for those that follow
        after = bisect_left(many, time, first, last)  # the first that is not before, if it may be taken
        place = after - 1 if after > first and time - many[after - 1] <= many[after] - time else after
        places.append(place)
        first = place + 1
    return places


def _ops(trace: Reel, events: _Events) -> list[dict[str, Any]]:
    """The names of the calls in which events happened."""
    with reading(trace, ("ops",)):
        table = trace.table("ops", ["id", "name"])
    wanted = np.isin(ints(table, "id"), np.unique(events.op))
    rows: list[dict[str, Any]] = table.filter(pa.array(wanted)).to_pylist()
    return rows


def _row(
    ours: _Events, theirs: _Events, one: int, other: int, names: dict[tuple[int, int], str], stacks: dict[int, Stacks]
) -> dict[str, Any]:
    found = stacks[int(theirs.process[other])]
    stack = int(rows_of(found.id, theirs.stack[other : other + 1])[0])
    has_frames = stack >= 0 and found.starts[stack] < found.starts[stack + 1]
    return {
        "process": int(ours.process[one]),
        "device": ours.device[one],
        "action": "free" if ours.action[one] else "alloc",
        "addr": int(ours.addr[one]),
        "size": int(ours.size[one]),
        "trace_alloc": int(ours.id[one]),
        "snapshot_alloc": int(theirs.id[other]),
        "op": names.get((int(ours.process[one]), int(ours.op[one]))),
        "line": found.line(stack).text if has_frames else None,
    }
