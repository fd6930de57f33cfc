"""A model's share of a recording, what its runtime measured and where its ops stand -> a reel."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from torchreel._version import __version__
from torchreel.edge.backends import BackendRows, Reported, ReportedMemory
from torchreel.edge.formats.adapter import Adapter, Location
from torchreel.edge.locations import LocationTables, set_locations
from torchreel.record import process
from torchreel.record.flops import FlopCounter
from torchreel.reel import Reel, joining, load
from torchreel.reel.meta import write_meta
from torchreel.reel.tables import ALLOCS, INPUTS, OPS, THREADS
from torchreel.reel.write import conform, write_process

Tables = dict[str, pa.Table]
Row = dict[str, Any]

_PLACE_COLUMNS = ["id", "parent", "kind", "name", "module", "stack", "debug_handle"]
_SPAN_COLUMNS = [*_PLACE_COLUMNS, "thread", "start_ns", "dur_ns", "depth"]


@dataclass(frozen=True)
class Wanted:
    """What a profiler was asked for, as far as its result depends on it."""

    modules: bool
    stacks: bool
    flops: bool
    adjust: bool


def make_reel(
    path: Path,
    tables: Tables,
    adapter: Adapter,
    root: int,
    wanted: Wanted,
    reported: list[Reported],
    memory: list[ReportedMemory],
    options: dict[str, Any],
) -> Reel:
    """Join all that is known of the model's calls, and write it."""
    tables = {**tables, "ops": tables["ops"].sort_by("id").combine_chunks()}
    if wanted.flops:
        tables["ops"] = FlopCounter(whole_ops=True)(tables["ops"], tables["inputs"])
    locations = LocationTables(tables, root)
    if wanted.modules or wanted.stacks:
        _set_locations(tables, locations, adapter, wanted)
    events = adapter.events()
    if reported or any(events):
        known = adapter.locations_of_backend(sorted({event.debug_handle for event in reported}))
        _add_backends(tables, locations, events, reported, known, wanted)
    locations.write(tables)
    if memory:
        tables["allocs"] = _with_memory(tables, memory)
    path.mkdir(parents=True, exist_ok=True)
    directory = joining.claim_directory(path, process.describe_process())
    tables["processes"] = tables["processes"].set_column(
        tables["processes"].schema.get_field_index("name"), "name", pa.array([directory.name])
    )
    write_process(directory, tables)
    joining.release_directory(directory)
    write_meta(
        path,
        {
            "torchreel": __version__,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "state": "closed",
            "root": directory.name,
            "options": options,
            "edge": {"model": adapter.name, "format": adapter.format, "remark": adapter.remark},
        },
    )
    return load(path)


def _columns(ops: pa.Table, rows: list[Row], names: tuple[str, ...]) -> pa.Table:
    """The ops with these columns taken from rows of the same order."""
    for name in names:
        field = OPS.schema.field(name)
        column = pa.array([row[name] for row in rows], field.type)
        ops = ops.set_column(ops.schema.get_field_index(name), field, column)
    return ops


def _set_locations(tables: Tables, locations: LocationTables, adapter: Adapter, wanted: Wanted) -> None:
    rows: list[Row] = tables["ops"].select(_PLACE_COLUMNS).to_pylist()
    set_locations(rows, locations, adapter, wanted.modules, wanted.stacks)
    tables["ops"] = _columns(tables["ops"], rows, ("module", "stack"))


def _add_backends(
    tables: Tables,
    locations: LocationTables,
    events: list[Any],
    reported: list[Reported],
    known: dict[int, Location],
    wanted: Wanted,
) -> None:
    ops = tables["ops"]
    rows: list[Row] = ops.select(_SPAN_COLUMNS).to_pylist()
    made = BackendRows(
        calls=sorted((row for row in rows if row["parent"] is None and row["kind"] == "module"), key=_start),
        locations=locations,
        next_id=1 + (pc.max(ops.column("id")).as_py() or 0),
        next_input=_next(tables["inputs"]),
        next_thread=_next(tables["threads"]),
        threads_by_os_id={row["os_id"]: row["id"] for row in tables["threads"].to_pylist()},
        modules=wanted.modules,
        stacks=wanted.stacks,
    )
    made.add_measured(events)
    made.add_reported(reported, rows, wanted.adjust, known)
    added = conform(OPS, pa.Table.from_pylist(made.rows, schema=_schema_of(made.rows)))
    tables["ops"] = _with_self_times(pa.concat_tables([conform(OPS, ops), added]).unify_dictionaries())
    _renumber(tables)
    for name, definition, more in (("inputs", INPUTS, made.inputs), ("threads", THREADS, made.threads)):
        if more:
            tables[name] = pa.concat_tables([tables[name], pa.Table.from_pylist(more, schema=definition.schema)])


def _start(row: Row) -> tuple[int, int]:
    return row["start_ns"], row["id"]


def _next(table: pa.Table) -> int:
    return 1 + int(pc.max(table.column("id")).as_py() or 0) if table.num_rows else 0


def _schema_of(rows: list[Row]) -> pa.Schema:
    names = rows[0].keys() if rows else []
    return pa.schema([OPS.schema.field(name) for name in OPS.schema.names if name in names])


def _with_self_times(ops: pa.Table) -> pa.Table:
    """The time of each call less that of the calls within it on its own thread."""
    ops = ops.combine_chunks()
    ids, durations = ops.column("id").to_numpy(), ops.column("dur_ns").to_numpy()
    threads = pc.fill_null(ops.column("thread"), -1).to_numpy()
    parents = pc.fill_null(ops.column("parent"), -1).to_numpy()
    order = np.argsort(ids)
    position = order[np.minimum(np.searchsorted(ids, parents, sorter=order), len(ids) - 1)]
    counts = (parents >= 0) & (ids[position] == parents) & (threads[position] == threads)
    within = np.bincount(position[counts], weights=durations[counts], minlength=len(ids)).astype(np.int64)
    free = np.where(ops.column("async").to_numpy(), 0, np.maximum(durations - within, 0))
    return ops.set_column(ops.schema.get_field_index("self_ns"), OPS.schema.field("self_ns"), pa.array(free))


def _renumber(tables: Tables) -> None:
    """Number the ops anew in the order of time, whatever they came from; what lies within another follows it."""
    ops = tables["ops"]
    order = np.lexsort((ops.column("depth").to_numpy(), -ops.column("dur_ns").to_numpy(), ops.column("start_ns")))
    ops = ops.take(pa.array(order)).combine_chunks()
    old = ops.column("id").combine_chunks()
    new = pa.array(np.arange(ops.num_rows))
    for name in ("parent", "fwd"):
        ops = ops.set_column(ops.schema.get_field_index(name), name, _mapped(ops.column(name), old, new))
    tables["ops"] = ops.set_column(ops.schema.get_field_index("id"), "id", new)
    for name in ("allocs", "counters", "marks"):
        table = tables[name]
        mapped = _mapped(table.column("op"), old, new)
        tables[name] = table.set_column(table.schema.get_field_index("op"), "op", mapped)


def _mapped(column: pa.ChunkedArray, old: pa.Array, new: pa.Array) -> pa.ChunkedArray:
    return pc.take(new, pc.index_in(column, value_set=old))


def _with_memory(tables: Tables, memory: list[ReportedMemory]) -> pa.Table:
    allocs = tables["allocs"]
    first = _next(allocs)
    threads = {row["os_id"]: row["id"] for row in tables["threads"].to_pylist()}
    rows = [
        {
            "id": first + index,
            "time_ns": event.told_ns,
            "thread": threads.get(event.os_thread),
            "device": event.device,
            "action": "alloc" if event.bytes >= 0 else "free",
            "addr": event.address,
            "size": abs(event.bytes),
            "total": event.allocated,
            "reserved": event.reserved,
        }
        for index, event in enumerate(memory)
    ]
    added = pa.Table.from_pylist(rows, schema=pa.schema([ALLOCS.schema.field(name) for name in rows[0]]))
    return pa.concat_tables([conform(ALLOCS, allocs), conform(ALLOCS, added)]).unify_dictionaries()
