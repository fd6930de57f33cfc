"""RecordedHistory: an allocator's history as the simulator takes it: events as numbers, pools, settings, the end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from torchreel.reel import Reel
from torchreel.reel.allocator_history import AllocatorHistory, histories, histories_of
from torchreel.reel.allocator_history.actions import (
    ALLOC,
    FREE,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    OTHER,
    PREEXISTING,
    SEGMENT_MAP,
)
from torchreel.reel.allocator_history.history import reserved_changes, reserved_levels
from torchreel.reel.columns import Ints, ints, texts
from torchreel.simulator.conf import Conf
from torchreel.simulator.rules import MOST_BYTES

ACTION, ADDRESS, SIZE, STREAM, POOL = range(5)  # columns of RecordedHistory.events
UNKNOWN = -1
_MORE_COLUMNS = ("stream", "alloc", "pool", "compile_context", "metadata")
_HIGHEST = 1 << 62  # no address is above: what a damaged file holds there is left out
_PENDING = ("active_pending_free", "active_awaiting_free")


@dataclass(frozen=True)
class FinalSegment:
    address: int
    size: int
    stream: int
    pool: int
    small: bool
    expandable: bool


@dataclass(frozen=True)
class FinalBlock:
    """A block that was not free."""

    address: int
    size: int
    requested: int
    pending: bool


@dataclass(frozen=True)
class RecordedHistory:
    """An AllocatorHistory as the simulator reads it. What a damaged file cannot mean is left out."""

    process: int
    device: str
    events: Ints
    """One row per event: action, address, size, stream, and index of the pool (-1: not known)."""
    ids: Ints
    """The events' ids in the reel."""
    makers: Ints
    """For each event the id of the one that made its block; -1 if that is older than the history."""
    segments: list[FinalSegment]
    blocks: list[FinalBlock]
    pools: list[tuple[int, int]]
    """The ids of the pools by index; the first is the default one."""
    conf: Conf
    torch_version: str | None
    """As the file names it."""
    dated: tuple[tuple[int, int], tuple[int, int]]
    """Between which versions the file was written, by what it holds."""
    total: int | None
    fraction: float | None

    @property
    def has_events(self) -> bool:
        """Whether there is more of a history than the one event that PyTorch always keeps."""
        return len(self.events) > 1 and bool(np.any(self.events[:, ACTION] == ALLOC))

    def peak_reserved(self) -> int:
        """The most bytes that were ever reserved, by the segment events and the end alone."""
        changes = reserved_changes(self.events[:, ACTION], self.events[:, SIZE])
        return sum(segment.size for segment in self.segments) + int(reserved_levels(changes, 0).max())

    def count(self, *actions: int) -> int:
        return int(np.isin(self.events[:, ACTION], actions).sum())


def recorded_histories(reel: Reel) -> list[RecordedHistory]:
    """One for each device of each process that has events or a state."""
    settings = reel.table("settings")
    return [
        _recorded(history, _settings(settings.filter(pc.equal(settings["process"], history.process))))
        for history in histories(reel, _MORE_COLUMNS)
        if history.device
    ]


def recorded_histories_of(tables: dict[str, pa.Table]) -> list[RecordedHistory]:
    """One for each device in the tables of one process."""
    settings = _settings(tables["settings"])
    return [_recorded(history, settings) for history in histories_of(tables) if history.device]


def _recorded(history: AllocatorHistory, settings: dict[str, Any]) -> RecordedHistory:
    pools = _Pools()
    events = _events(history, pools)
    final = _segments(history.segment_rows, pools)
    expandable = any(segment.expandable for segment in final) or SEGMENT_MAP in events[:, ACTION]
    return RecordedHistory(
        process=history.process,
        device=history.device,
        events=events,
        ids=ints(history.event_rows, "id"),
        makers=_makers(history),
        segments=final,
        blocks=_blocks(history.final),
        pools=pools.ids,
        conf=Conf.from_settings(settings) if settings else Conf(expandable_segments=expandable),
        torch_version=history.process_row.get("torch_version"),
        dated=_dated(history.event_rows, bool(settings), "graph_capture_record_stream_reuse" in settings),
        total=history.device_row.get("total"),
        fraction=history.device_row.get("fraction"),
    )


class _Pools:
    """Indices of pools by their ids, as texts."""

    def __init__(self) -> None:
        self.ids = [(0, 0)]
        self._indices: dict[str | None, int] = {"0,0": 0, None: UNKNOWN, "": UNKNOWN}

    def index(self, text: str | None) -> int:
        if text not in self._indices:
            first, _, second = str(text).partition(",")
            self._indices[text] = len(self.ids)
            self.ids.append((int(first), int(second)))
        return self._indices[text]

    def column(self, allocs: pa.Table) -> Ints:
        codes, names = texts(allocs, "pool")
        indices = np.array([*(self.index(name) for name in names), UNKNOWN], np.int64)
        return indices[codes]


def _makers(history: AllocatorHistory) -> Ints:
    makes = np.isin(history.action, (ALLOC, PREEXISTING, OOM))
    return np.where(makes, ints(history.event_rows, "id"), ints(history.event_rows, "alloc"))


def _events(history: AllocatorHistory, pools: _Pools) -> Ints:
    allocs = history.event_rows
    events = np.empty((allocs.num_rows, 5), np.int64)
    events[:, ACTION] = history.action
    events[:, ADDRESS] = ints(allocs, "addr", 0)
    events[:, SIZE] = ints(allocs, "size", 0)
    events[:, STREAM] = ints(allocs, "stream", 0)
    events[:, POOL] = pools.column(allocs)
    wrong = (events[:, ADDRESS] < 0) | (events[:, ADDRESS] > _HIGHEST)
    wrong |= (events[:, SIZE] < 0) | (events[:, SIZE] > MOST_BYTES)
    wrong |= np.asarray(pc.is_null(allocs["addr"])) & (events[:, ACTION] != OOM)
    events[wrong, ACTION] = OTHER
    # A recording may leave out one half of each free: then the other half is all of it.
    requested, completed = (np.any(events[:, ACTION] == code) for code in (FREE_REQUESTED, FREE_COMPLETED))
    if requested and not completed:
        events[events[:, ACTION] == FREE_REQUESTED, ACTION] = FREE
    elif completed and not requested:
        events[events[:, ACTION] == FREE_COMPLETED, ACTION] = FREE
    return events


def _segments(table: pa.Table, pools: _Pools) -> list[FinalSegment]:
    columns = ("address", "size", "stream", "type", "pool", "expandable")
    rows = sorted(zip(*(table[name].to_pylist() for name in columns), strict=True), key=lambda row: row[0] or 0)
    return [
        FinalSegment(address, size, stream or 0, max(pools.index(pool), 0), kind == "small", bool(expandable))
        for address, size, stream, kind, pool, expandable in rows
        if address is not None and size is not None and 0 <= address <= _HIGHEST and 0 < size <= MOST_BYTES
    ]


def _blocks(table: pa.Table) -> list[FinalBlock]:
    columns = ("address", "size", "requested", "state")
    rows = sorted(zip(*(table[name].to_pylist() for name in columns), strict=True), key=lambda row: row[0] or 0)
    return [
        FinalBlock(address, size, size if requested is None else requested, state in _PENDING)
        for address, size, requested, state in rows
        if state != "inactive" and address is not None and size and 0 <= address <= _HIGHEST and size <= MOST_BYTES
    ]


def _settings(table: pa.Table) -> dict[str, Any]:
    settings = {}
    for name, value in zip(table["name"].to_pylist(), table["value"].to_pylist(), strict=True):
        try:
            settings[name] = json.loads(value)
        except (TypeError, ValueError):
            continue
    return settings


def _dated(allocs: pa.Table, has_settings: bool, reuse: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """The versions of torch that write such a file: each brought a key of its own."""
    if allocs.num_rows == 0:
        return ((2, 9), (2, 13)) if reuse else ((2, 3), (2, 8)) if has_settings else ((2, 0), (2, 2))
    keys = [
        ((2, 2), allocs["time_ns"].null_count < allocs.num_rows),
        ((2, 3), has_settings),
        ((2, 8), allocs["compile_context"].null_count < allocs.num_rows),
        ((2, 9), reuse),
        ((2, 10), allocs["metadata"].null_count < allocs.num_rows),
        ((2, 12), allocs["pool"].null_count < allocs.num_rows),
    ]
    first, last = (2, 0), (2, 13)
    for version, present in keys:
        if present:
            first = version
    for version, present in reversed(keys):
        if not present and version > first:
            last = (version[0], version[1] - 1)
    return first, last
