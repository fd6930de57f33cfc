"""A reel as long as you like: the calls, allocs and steps of a recorded one, again and again.

python -m benchmarks.long_reel demo.reel long.reel 10000000
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from torchreel.reel import TABLES, Reel
from torchreel.reel.reel import Process
from torchreel.reel.write import ProcessWriter

# Columns that grow from one repetition to the next: with the ids of calls, of allocs, with time, with steps.
_GROWS = {
    "ops": {"id": "call", "parent": "call", "fwd": "call", "start_ns": "time", "step": "step"},
    "allocs": {"id": "alloc", "alloc": "alloc", "op": "call", "time_ns": "time"},
    "marks": {"op": "call", "time_ns": "time"},
    "steps": {"step": "step", "start_ns": "time", "end_ns": "time"},
    "kernels": {"id": "kernel", "op": "call", "start_ns": "time"},
}


def lengthen(source: Path, target: Path, ops: int) -> int:
    """Write the calls of one reel to another until there are so many; gives how often."""
    reel = Reel(source)
    times = -(-ops // reel.table("ops", ["id"]).num_rows)
    rows = reel.process_rows()
    begin = min(row["start_ns"] for row in rows)
    length = max(row["end_ns"] for row in rows) - begin
    target.mkdir()
    shutil.copy(source / "meta.json", target)
    for part in reel.parts:
        _write(part, target / part.name, times, length)
    return times


def _write(part: Process, directory: Path, times: int, length: int) -> None:
    by = {name: _next(part, *where) for name, where in _COUNTED.items()} | {"time": length}
    with ProcessWriter(directory) as writer:
        for name, definition in TABLES.items():
            table = part.table(definition)
            if name == "processes":
                end = pc.add(table["end_ns"], (times - 1) * length)
                table = table.set_column(table.schema.get_field_index("end_ns"), "end_ns", end)
            for time in range(times if name in _GROWS else 1):
                writer.write(name, _moved(table, {c: time * by[kind] for c, kind in _GROWS.get(name, {}).items()}))


_COUNTED = {"call": ("ops", "id"), "alloc": ("allocs", "id"), "step": ("steps", "step"), "kernel": ("kernels", "id")}


def _next(part: Process, table: str, column: str) -> int:
    most = pc.max(part.table(TABLES[table], [column])[column]).as_py()
    return 0 if most is None else int(most) + 1


def _moved(table: pa.Table, by: dict[str, int]) -> pa.Table:
    for column, distance in by.items():
        at = table.schema.get_field_index(column)
        field = table.schema.field(at)
        table = table.set_column(at, field, pc.add(table.column(column), pa.scalar(distance, field.type)))
    return table


if __name__ == "__main__":
    print(f"{lengthen(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))} times over")
