"""One model's share of a recording: its calls and what is below them, on its own threads and on torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from torchreel.edge.dissolve import without_modules

# The mark after which a thread of torch's works for a model: as native/base/spool_format.h has it.
_MODEL_MARK = "torchreel::model "
# The mark before which nothing is a model's: another profiler of the same module may have begun earlier.
BEGIN_MARK = "torchreel::begin "

Tables = dict[str, pa.Table]
Array = np.ndarray[Any, Any]


def share_of(tables: Tables, model: int, module: int, with_modules: bool) -> Tables:
    """What the model with this number did; `module` is its number among modules."""
    ops = tables["ops"].combine_chunks()
    kept, calls = _kept(ops, tables["marks"], model, module)
    parents = pc.if_else(pa.array(calls), pa.scalar(None, pa.int64()), ops.column("parent"))
    ops = _set(ops, "parent", parents).filter(pa.array(kept)).sort_by("id").combine_chunks()
    tables = {**tables, "ops": ops}
    if not with_modules:
        tables = without_modules(tables, module)
    ops = tables["ops"]
    ids = ops.column("id")
    allocs = _allocs(tables["allocs"], ids)
    shared = {
        **tables,
        "ops": _set(ops, "step", pa.nulls(ops.num_rows, pa.int32())),
        "allocs": allocs,
        "counters": _within(tables["counters"], "op", ids),
        "marks": _within(tables["marks"], "op", ids),
        "blocks": _within(tables["blocks"], "alloc", allocs.column("id")),
        "threads": _within(tables["threads"], "id", ops.column("thread")),
        "stacks": _within(tables["stacks"], "id", pa.chunked_array([*ops.column("stack").chunks])),
        "modules": _modules(tables["modules"], ops.column("module"), module),
    }
    for name in ("steps", "flows", "segments"):
        shared[name] = tables[name].slice(0, 0)
    return shared


def _set(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)


def _within(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    """The rows that refer to one of the values."""
    return table.filter(pc.is_in(table.column(name), pc.drop_null(values.combine_chunks())))


def _kept(ops: pa.Table, marks: pa.Table, model: int, module: int) -> tuple[Array, Array]:
    """Which rows are the model's, and which of them are its calls."""
    count = ops.num_rows
    ids = ops.column("id").to_numpy()
    order = np.argsort(ids)
    parents = pc.fill_null(ops.column("parent"), -1).to_numpy()
    position = order[np.minimum(np.searchsorted(ids, parents, sorter=order), max(count - 1, 0))] if count else order
    owner = np.where((parents >= 0) & (ids[position] == parents), position, np.arange(count)) if count else position
    is_module = pc.equal(ops.column("kind").cast(pa.string()), "module").to_numpy()
    begins = ops.column("start_ns").to_numpy()
    mine = is_module & (pc.fill_null(ops.column("module"), -1).to_numpy() == module)
    mine &= begins >= _began(marks, model)
    inner = mine & _below(owner, mine)
    calls = mine & ~inner
    top = np.where(calls, np.arange(count), owner)
    top = _tops(top)
    names = ops.column("thread").to_numpy()
    helped = (top == np.arange(count)) & ~calls & (_working_for(marks, names, begins) == model)
    return calls[top] | helped[top], calls


def _began(marks: pa.Table, model: int) -> int:
    said = marks.filter(pc.equal(marks.column("name").cast(pa.string()), f"{BEGIN_MARK}{model}"))
    return said.column("time_ns")[0].as_py() if said.num_rows else 0


def _tops(owner: Array) -> Array:
    """The outermost of each row: owners of owners, until nothing changes."""
    while True:
        above = owner[owner]
        if np.array_equal(above, owner):
            return owner
        owner = above


def _below(owner: Array, chosen: Array) -> Array:
    """Whether a row lies inside of another row that is chosen."""
    below = np.zeros(len(owner), dtype=bool)
    current = owner
    while True:
        below |= chosen[current] & (current != np.arange(len(owner)))
        above = owner[current]
        if np.array_equal(above, current):
            return below
        current = above


def _working_for(marks: pa.Table, threads: Array, begins: Array) -> Array:
    """For each moment on a thread: the model that the thread worked for, else 0."""
    models = np.zeros(len(threads), dtype=np.int64)
    said = [
        (row["thread"], row["time_ns"], int(row["name"].removeprefix(_MODEL_MARK)))
        for row in marks.to_pylist()
        if row["name"].startswith(_MODEL_MARK)
    ]
    for thread in {thread for thread, _, _ in said}:
        changes = sorted((time, model) for other, time, model in said if other == thread)
        here = np.flatnonzero(threads == thread)
        last = np.searchsorted(np.array([time for time, _ in changes]), begins[here], side="right")
        models[here] = np.array([0, *(model for _, model in changes)])[last]
    return models


def _allocs(allocs: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
    """Blocks that the model allocated, and their frees by any thread. Totals count these blocks only."""
    known = pc.drop_null(ids.combine_chunks())
    made = pc.and_(pc.equal(allocs.column("action").cast(pa.string()), "alloc"), pc.is_in(allocs.column("op"), known))
    blocks = allocs.filter(made).column("id").combine_chunks()
    freed = pc.and_(pc.is_valid(allocs.column("alloc")), pc.is_in(allocs.column("alloc"), blocks))
    allocs = allocs.filter(pc.or_(made, freed)).combine_chunks()
    is_free = pc.equal(allocs.column("action").cast(pa.string()), "free").to_numpy()
    sizes = pc.fill_null(allocs.column("size"), 0).to_numpy()
    totals = np.cumsum(np.where(is_free, -sizes, sizes)).astype(np.int64)
    ops = pc.if_else(pc.is_in(allocs.column("op"), known), allocs.column("op"), pa.scalar(None, pa.int64()))
    return _set(_set(allocs, "total", pa.array(totals)), "op", ops)


def _modules(modules: pa.Table, used: pa.ChunkedArray, model: int) -> pa.Table:
    """The modules in which something ran, and those that hold them."""
    parents = dict(zip(modules.column("id").to_pylist(), modules.column("parent").to_pylist(), strict=True))
    kept: set[int] = set()
    for each in {model, *used.unique().to_pylist()} - {None}:
        above: int | None = each
        while above is not None and above not in kept:
            kept.add(above)
            above = parents.get(above)
    return modules.filter(pc.is_in(modules.column("id"), pa.array(sorted(kept), pa.int32())))
