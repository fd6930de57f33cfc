"""Reels made by hand: a tree of calls in, a reel on disk out. What a test expects can be read off the tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process

START = 1_700_000_000_000_000_000


@dataclass
class Call:
    """One call: its own time, and the calls it made, one after the other."""

    name: str
    self_ns: int
    children: tuple[Call, ...] = ()
    kind: str = "op"
    overload: str = ""
    inputs: str | None = None
    module: str | None = None
    stack: tuple[tuple[str, int, str], ...] | None = None
    step: int | None = None
    flops: int | None = None
    bytes: int | None = None
    asynchronous: bool = False

    @property
    def dur_ns(self) -> int:
        return self.self_ns + sum(child.dur_ns for child in self.children)

    @property
    def all_bytes(self) -> int | None:
        parts = [self.bytes, *(child.all_bytes for child in self.children)]
        known = [part for part in parts if part is not None]
        return sum(known) if known else None


def call(name: str, self_ns: int, *children: Call, **fields: Any) -> Call:
    return Call(name, self_ns, children, **fields)


@dataclass
class Process:
    """One process: the outermost calls of each of its threads."""

    threads: dict[str, Sequence[Call]]
    name: str = "host-1"
    pid: int = 1
    rank: int | None = None
    complete: bool = True
    lost_events: int = 0
    # (action, size) in the order of time; the device is the cpu
    allocs: Sequence[tuple[str, int]] = ()
    sources: Sequence[dict[str, Any]] = ()  # rows of the table
    first_id: int = 0  # where the ids of its inputs, stacks and modules begin
    _ids: dict[str, dict[Any, int]] = field(default_factory=dict)

    def _id(self, table: str, value: Any) -> int | None:
        if value is None:
            return None
        known = self._ids.setdefault(table, {})
        return known.setdefault(value, len(known) + self.first_id)

    def _module(self, path: str | None) -> int | None:
        if path is not None and "." in path:
            self._module(path.rpartition(".")[0])
        return self._id("modules", path)

    def _stack(self, stack: tuple[tuple[str, int, str], ...] | None) -> int | None:
        return None if stack is None else self._id("stacks", tuple(self._id("frames", frame) for frame in stack))

    def _row(
        self, rows: list[dict[str, Any]], item: Call, thread: int, start: int, parent: dict[str, Any] | None
    ) -> int:
        row = {
            "id": len(rows),
            "parent": parent["id"] if parent else None,
            "thread": thread,
            "name": item.name,
            "overload": item.overload,
            "kind": item.kind,
            "start_ns": start,
            "dur_ns": item.dur_ns,
            "self_ns": 0 if item.asynchronous else item.self_ns,
            "depth": parent["depth"] + 1 if parent else 0,
            "step": item.step,
            "module": self._module(item.module),
            "stack": self._stack(item.stack),
            "inputs": self._id("inputs", item.inputs),
            "flops": item.flops,
            "alloc_bytes": item.all_bytes,
            "self_alloc_bytes": item.bytes if item.bytes is not None else (None if item.all_bytes is None else 0),
            "async": item.asynchronous,
            "open": False,
        }
        rows.append(row)
        for child in item.children:
            start = self._row(rows, child, thread, start, row)
        return row["start_ns"] + item.dur_ns

    def tables(self) -> dict[str, pa.Table]:
        ops: list[dict[str, Any]] = []
        ends = [START]
        for thread, calls in enumerate(self.threads.values()):
            moment = START
            for item in calls:
                moment = self._row(ops, item, thread, moment, None)
            ends.append(moment)
        tables = {
            "ops": ops,
            "threads": [
                {"id": number, "os_id": 100 * self.pid + number, "torch_id": number + 1, "name": name}
                for number, name in enumerate(self.threads)
            ],
            "processes": [self._process(max(ends))],
            "allocs": self._allocs(),
            "sources": list(self.sources),
            "steps": [
                {"step": step, "start_ns": START, "end_ns": START}
                for step in sorted({row["step"] for row in ops if row["step"] is not None})
            ],
            **self._texts(),
        }
        return {name: pa.Table.from_pylist(rows) for name, rows in tables.items() if rows}

    def _process(self, end: int) -> dict[str, Any]:
        return {
            "name": self.name,
            "pid": self.pid,
            "host": self.name.partition("-")[0],
            "rank": self.rank,
            "start_ns": START,
            "end_ns": end,
            "complete": self.complete,
            "lost_events": self.lost_events,
        }

    def _allocs(self) -> list[dict[str, Any]]:
        rows, total = [], 0
        for number, (action, size) in enumerate(self.allocs):
            total += -size if action == "free" else size
            rows.append(
                {"id": number, "time_ns": START, "device": "cpu", "action": action, "size": size, "total": total}
            )
        return rows

    def _texts(self) -> dict[str, list[dict[str, Any]]]:
        modules = self._ids.get("modules", {})
        return {
            "inputs": [{"id": number, "dims": dims} for dims, number in self._ids.get("inputs", {}).items()],
            "modules": [
                {"id": number, "path": path, "class": "Module", "parent": modules.get(path.rpartition(".")[0])}
                for path, number in modules.items()
            ],
            "stacks": [
                {"id": number, "frames": list(frames)} for frames, number in self._ids.get("stacks", {}).items()
            ],
            "frames": [
                {"id": number, "file": file, "line": line, "function": function}
                for (file, line, function), number in self._ids.get("frames", {}).items()
            ],
        }


def write_reel(path: Path, *processes: Process) -> Path:
    """Write the processes as a reel, the first of them its root."""
    path.mkdir(parents=True)
    for process in processes:
        write_process(path / process.name, process.tables())
    write_meta(path, {"root": processes[0].name if processes else None})
    return path
