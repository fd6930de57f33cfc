"""What a reel or a snapshot holds of one device's allocator, as numbers: events, and the state at the end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from torchreel.reel import Reel
from torchreel.simulator.actions import (
    CODES,
    FREE,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    OTHER,
    SEGMENT_ALLOC,
    SEGMENT_EVENTS,
    SEGMENT_MAP,
)
from torchreel.simulator.conf import Conf
from torchreel.simulator.rules import MOST_BYTES

Ints = npt.NDArray[np.int64]

ACTION, ADDRESS, SIZE, STREAM, POOL = range(5)  # columns of AllocatorHistory.events
UNKNOWN = -1
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
class AllocatorHistory:
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
    process: int = 0

    @property
    def has_events(self) -> bool:
        """Whether there is more of a history than the one event that PyTorch always keeps."""
        return len(self.events) > 1 and bool(np.any(self.events[:, ACTION] == CODES["alloc"]))

    def peak_reserved(self) -> int:
        """The most bytes that were ever reserved, by the segment events and the end alone."""
        rows = self.events[np.isin(self.events[:, ACTION], SEGMENT_EVENTS)]
        grows = np.isin(rows[:, ACTION], (SEGMENT_ALLOC, SEGMENT_MAP))
        changes = np.where(grows, rows[:, SIZE], -rows[:, SIZE])
        before = sum(segment.size for segment in self.segments) - int(changes.sum())
        return before + max(0, int(np.cumsum(changes).max(initial=0)))

    def count(self, *actions: int) -> int:
        return int(np.isin(self.events[:, ACTION], actions).sum())


def histories(reel: Reel) -> list[AllocatorHistory]:
    """One for each device of each process that has events or a state."""
    tables = {name: reel.table(name) for name in ("allocs", "segments", "blocks", "devices", "settings", "processes")}
    found = []
    for process in (part.index for part in reel.parts):
        parts = {name: table.filter(pc.equal(table["process"], process)) for name, table in tables.items()}
        found.extend(histories_of(parts, process))
    return found


def histories_of(tables: dict[str, pa.Table], process: int = 0) -> list[AllocatorHistory]:
    """One for each device in the tables of one process."""
    names: dict[str, None] = {}
    for table in ("devices", "allocs", "segments"):
        names.update(dict.fromkeys(pc.unique(tables[table]["device"]).to_pylist()))
    settings = _settings(tables["settings"])
    row = tables["processes"].to_pylist()
    version = row[0]["torch_version"] if row else None
    found = []
    for device in sorted(name for name in names if name is not None):
        of_device = {
            name: tables[name].filter(pc.equal(tables[name]["device"], device))
            for name in ("allocs", "segments", "blocks", "devices")
        }
        found.append(_of_device(device, of_device, settings, version, process))
    return found


def _of_device(
    device: str, tables: dict[str, pa.Table], settings: dict[str, Any], version: str | None, process: int
) -> AllocatorHistory:
    allocs, segments = tables["allocs"].sort_by("id"), tables["segments"]
    pools = _Pools()
    events = _events(allocs, pools)
    known = tables["devices"].to_pylist()
    final = _segments(segments, pools)
    expandable = any(segment.expandable for segment in final) or CODES["segment_map"] in events[:, ACTION]
    conf = Conf.from_settings(settings) if settings else Conf(expandable_segments=expandable)
    return AllocatorHistory(
        device=device,
        events=events,
        ids=_numbers(allocs["id"]),
        makers=_makers(allocs),
        segments=final,
        blocks=_blocks(tables["blocks"]),
        pools=pools.ids,
        conf=conf,
        torch_version=version,
        dated=_dated(allocs, bool(settings), "graph_capture_record_stream_reuse" in settings),
        total=known[0]["total"] if known else None,
        fraction=known[0]["fraction"] if known else None,
        process=process,
    )


class _Pools:
    """Indices of pools by their ids, as texts."""

    def __init__(self) -> None:
        self.ids = [(0, 0)]
        self._indices: dict[str | None, int] = {"0,0": 0, None: UNKNOWN}

    def index(self, text: str | None) -> int:
        if text not in self._indices:
            first, _, second = str(text).partition(",")
            self._indices[text] = len(self.ids)
            self.ids.append((int(first), int(second)))
        return self._indices[text]

    def column(self, values: pa.ChunkedArray) -> Ints:
        if values.null_count == len(values):
            return np.full(len(values), UNKNOWN, np.int64)
        encoded = pa.chunked_array(values).unify_dictionaries().combine_chunks()
        indices = np.array([self.index(text) for text in [*encoded.dictionary.to_pylist(), None]], np.int64)
        result: Ints = indices[encoded.indices.fill_null(len(indices) - 1).to_numpy()]
        return result


def _numbers(column: pa.ChunkedArray, missing: int = 0) -> Ints:
    numbers: Ints = pc.fill_null(column, missing).to_numpy().astype(np.int64)
    return numbers


def _codes(column: pa.ChunkedArray) -> Ints:
    encoded = column.unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.chunks) if encoded.num_chunks else pa.array([], column.type)
    codes = np.array([CODES.get(name, OTHER) for name in [*encoded.dictionary.to_pylist(), None]], np.int64)
    result: Ints = codes[encoded.indices.fill_null(len(codes) - 1).to_numpy()]
    return result


def _makers(allocs: pa.Table) -> Ints:
    makes = pc.is_in(allocs["action"].cast(pa.string()), pa.array(["alloc", "preexisting", "oom"]))
    return _numbers(pc.if_else(makes, allocs["id"], allocs["alloc"]), -1)


def _events(allocs: pa.Table, pools: _Pools) -> Ints:
    events = np.empty((allocs.num_rows, 5), np.int64)
    events[:, ACTION] = _codes(allocs["action"])
    events[:, ADDRESS] = _numbers(allocs["addr"])
    events[:, SIZE] = _numbers(allocs["size"])
    events[:, STREAM] = _numbers(allocs["stream"])
    events[:, POOL] = pools.column(allocs["pool"])
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
