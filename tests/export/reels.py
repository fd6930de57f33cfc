"""Reels made by hand, call by call."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from torchreel.reel import TABLES, Reel, load
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process

EPOCH = 1_790_900_000_000_000_000


class ProcessBuilder:
    """One process: add rows, in any order; `thread` 0 is its main thread. Times are nanoseconds after EPOCH."""

    def __init__(self, name: str, pid: int, **fields: Any) -> None:
        self.name = name
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._ids = itertools.count(1)
        base = {"host": "host", "command": "/usr/bin/python train.py", "complete": True, "lost_events": 0}
        times = {"start_ns": EPOCH, "end_ns": EPOCH + 1_000_000}
        self.add("processes", name=name, pid=pid, **{**base, **times, **fields})
        self.thread(0, pid, "MainThread")

    def add(self, table: str, **row: Any) -> None:
        self.rows[table].append(row)

    def thread(self, id: int, os_id: int, name: str) -> None:
        self.add("threads", id=id, os_id=os_id, torch_id=id + 1, name=name)

    def op(self, name: str, start: int, end: int, **fields: Any) -> int:
        """A call; returns its id. Give the calls of a thread in the order in which they began."""
        id = next(self._ids)
        row = {"kind": "op", "thread": 0, "self_ns": end - start, "async": False, "open": False, **fields}
        self.add("ops", id=id, name=name, start_ns=EPOCH + start, dur_ns=end - start, **row)
        return id

    def range(self, name: str, start: int, end: int, **fields: Any) -> int:
        return self.op(name, start, end, kind="range", **fields)

    def alloc(self, time: int, size: int | None, action: str = "alloc", **fields: Any) -> None:
        row = {"thread": 0, "device": "cpu", "addr": 4096, "total": size, **fields}
        self.add("allocs", id=len(self.rows["allocs"]), time_ns=EPOCH + time, size=size, action=action, **row)

    def tables(self) -> dict[str, pa.Table]:
        return {name: _table(name, rows) for name, rows in self.rows.items()}


def _table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    schema = TABLES[name].schema
    unknown = {column for row in rows for column in row} - set(schema.names)
    assert not unknown, f"the table {name} has no {unknown}"
    return pa.table(
        {field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in schema}, schema=schema
    )


def build(path: Path, *processes: ProcessBuilder, **meta: Any) -> Reel:
    """Write the processes as a reel and open it; `meta` goes into meta.json."""
    path.mkdir(parents=True, exist_ok=True)
    write_meta(path, {"root": processes[0].name if processes else None, **meta})
    for process in processes:
        write_process(path / process.name, process.tables())
    return load(path)


def training_step(process: ProcessBuilder) -> None:
    """A step with everything that a reel can hold: forward on one thread, backward on another, memory, a stack."""
    process.thread(1, process.rows["threads"][0]["os_id"] + 1, "autograd")
    process.add("frames", id=0, file="model.py", line=12, function="Model.forward")
    process.add("frames", id=1, file="train.py", line=3, function="<module>")
    process.add("stacks", id=0, frames=[0, 1])
    process.add("modules", id=0, path="Model.linear", **{"class": "Linear"})
    texts = {"dims": "[[2, 4], [4, 4]]", "strides": "[[4, 1], [4, 1]]", "dtypes": '["float", "float"]'}
    process.add("inputs", id=0, scalars='["", ""]', **texts)
    process.add("steps", step=0, start_ns=EPOCH, end_ns=EPOCH + 90_000)
    step = process.range("train step", 1_000, 90_000)
    linear = process.op("aten::linear", 2_000, 20_000, parent=step, seq=7, module=0, stack=0, inputs=0, flops=64)
    process.op("aten::addmm", 3_000, 19_000, parent=linear, seq=7, module=0, stack=0, inputs=0, flops=64)
    process.add("marks", thread=0, time_ns=EPOCH + 21_000, name="forward done", op=step)
    outer = process.op(
        "autograd::engine::evaluate_function: AddmmBackward0",
        *(30_000, 50_000),
        **{"thread": 1, "seq": 7, "fwd_thread": 0, "fwd": linear},
    )
    backward = {"thread": 1, "seq": 7, "fwd_thread": 0, "fwd": linear, "parent": outer, "kind": "backward"}
    process.op("AddmmBackward0", 31_000, 49_000, **backward)
    process.op("nn.Module: Linear_0", 60_000, 70_000, parent=step, kind="module", module=0)
    process.op("model.py(12): forward", 61_000, 69_000, parent=step + 5, kind="python", module=0)
    process.alloc(-1, 128, "preexisting", total=64)
    process.alloc(-1, 128, "preexisting", total=192)
    process.alloc(4_000, 32, total=224, op=linear, stack=0)
    process.alloc(60_500, 32, "free", total=192)
