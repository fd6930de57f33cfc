"""Calls of modules taken out of a recording: another thread's profiler wanted them, and this one did not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from torchreel.reel.tables import OPS

Tables = dict[str, pa.Table]
Row = dict[str, Any]

# What a call has besides what is within the calls in it.
_OWN = ("self_ns", "self_alloc_bytes")


def without_modules(tables: Tables, root: int) -> Tables:
    """All but the calls of the model itself goes to what was around it. Rows are in the order of their ids."""
    ops = tables["ops"]
    rows: list[Row] = ops.select(["id", "parent", "kind", "module", "depth", *_OWN]).to_pylist()
    gone = {row["id"] for row in rows if row["kind"] == "module" and row["module"] != root}
    if not gone:
        return tables
    around = _around(rows, gone)
    by_id = {row["id"]: row for row in rows}
    for row in rows:
        outer = around.get(row["id"])
        if outer is not None:
            for name in _OWN:
                by_id[outer][name] = (by_id[outer][name] or 0) + (row[name] or 0)
    kept = [row for row in rows if row["id"] not in gone]
    for row in kept:
        row["parent"] = around.get(row["parent"], row["parent"])
        row["module"] = root
        row["depth"] = 0 if row["parent"] is None else by_id[row["parent"]]["depth"] + 1
    ops = ops.filter(pa.array([row["id"] not in gone for row in rows]))
    for name in ("parent", "module", "depth", *_OWN):
        field = OPS.schema.field(name)
        ops = ops.set_column(ops.schema.get_field_index(name), field, pa.array([row[name] for row in kept], field.type))
    return {
        **tables,
        "ops": ops.combine_chunks(),
        **{name: _moved(tables[name], around) for name in ("allocs", "marks")},
    }


def _around(rows: list[Row], gone: set[int]) -> dict[int, int | None]:
    """For each row that is removed, the nearest row around it that stays."""
    around: dict[int, int | None] = {}
    for row in rows:  # parents come before what is within them
        if row["id"] in gone:
            around[row["id"]] = around.get(row["parent"], row["parent"])
    return around


def _moved(table: pa.Table, around: dict[int, int | None]) -> pa.Table:
    moved = [around.get(op, op) for op in table.column("op").to_pylist()]
    return table.set_column(table.schema.get_field_index("op"), "op", pa.array(moved, pa.int64()))
