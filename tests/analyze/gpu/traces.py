"""Traces of devices made by hand: calls, kernels and waits in, a reel out. Times are what a test can add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import torchreel
from torchreel.reel.meta import write_meta
from torchreel.reel.tables import TABLES
from torchreel.reel.write import write_process


class Trace:
    """One process. Calls are given in the order of their starts; the parent of each is the innermost still open."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self._stacks: dict[tuple[tuple[str, int, str], ...], int] = {}
        self._frames: dict[tuple[str, int, str], int] = {}

    def add(self, table: str, **row: Any) -> int:
        """A row of any table; gives its number."""
        rows = self.tables.setdefault(table, [])
        rows.append(row)
        return len(rows) - 1

    def call(
        self,
        name: str,
        start: int,
        end: int,
        kind: str = "op",
        thread: int = 0,
        line: int | None = None,
        inputs: tuple[str, str] | None = None,
        **row: Any,
    ) -> int:
        """A call; with a line, of the user's own file train.py; with inputs, their dims and dtypes as JSON."""
        open_calls = [each for each in self.tables.get("ops", []) if each["thread"] == thread and each["_end"] > start]
        parent = open_calls[-1]["id"] if open_calls else None
        if line is not None:
            row["stack"] = self._stack((("/home/me/train.py", line, "main"),))
        if inputs is not None:
            row["inputs"] = self.add("inputs", id=len(self.tables.get("inputs", [])), dims=inputs[0], dtypes=inputs[1])
        number = len(self.tables.get("ops", []))
        row |= {"id": number, "parent": parent, "thread": thread, "name": name, "kind": kind, "_end": end}
        return self.add("ops", **row, start_ns=start, dur_ns=end - start, self_ns=end - start)

    def launch(self, start: int, end: int, name: str = "cudaLaunchKernel", thread: int = 0, **row: Any) -> int:
        return self.call(name, start, end, "runtime", thread, **row)

    def kernel(self, name: str, start: int, end: int, launch: int | None = None, **row: Any) -> int:
        """An activity of cuda:0, stream 7, unless told otherwise; its op is the innermost around its launch."""
        call = None if launch is None else self.tables["ops"][launch]
        values = {"device": "cuda:0", "stream": 7, "kind": "compute", "launch": launch, "op": self._op(call)}
        if call is not None:
            values |= {"step": call.get("step"), "module": call.get("module")}
        number = len(self.tables.get("kernels", []))
        return self.add(
            "kernels", **{**values, "id": number, "name": name, "start_ns": start, "dur_ns": end - start, **row}
        )

    def sync(self, kind: str, start: int, end: int, launch: int, **row: Any) -> None:
        self.add(
            "syncs",
            **{"device": "cuda:0", "kind": kind, "start_ns": start, "dur_ns": end - start, "launch": launch, **row},
        )

    def step(self, number: int, start: int, end: int) -> None:
        self.add("steps", step=number, start_ns=start, end_ns=end)

    def module(self, path: str, parent: int | None = None) -> int:
        number = len(self.tables.get("modules", []))
        return self.add("modules", id=number, path=path, parent=parent, **{"class": path.rpartition(".")[2]})

    def write(self, path: Path) -> torchreel.Reel:
        self.tables["frames"] = [
            {"id": number, "file": file, "line": line, "function": function}
            for (file, line, function), number in self._frames.items()
        ]
        self.tables["stacks"] = [
            {"id": number, "frames": [self._frames[frame] for frame in frames]}
            for frames, number in self._stacks.items()
        ]
        self.tables["threads"] = [
            {"id": thread, "os_id": thread} for thread in sorted({row["thread"] for row in self.tables.get("ops", [])})
        ]
        self.tables["processes"] = [{"name": "host-1", "pid": 1, **self._limits(), "complete": True}]
        path.mkdir(parents=True)
        write_process(path / "host-1", {name: _table(name, rows) for name, rows in self.tables.items() if rows})
        write_meta(path, {"root": "host-1"})
        return torchreel.load(path)

    def _limits(self) -> dict[str, int]:
        rows = [*self.tables.get("ops", []), *self.tables.get("kernels", [])]
        start = min((row["start_ns"] for row in rows), default=0)
        return {"start_ns": start, "end_ns": max((row["start_ns"] + row["dur_ns"] for row in rows), default=start)}

    def _op(self, call: dict[str, Any] | None) -> int | None:
        while call is not None and call["kind"] in ("runtime", "driver", "python", "module"):
            call = None if call["parent"] is None else self.tables["ops"][call["parent"]]
        return None if call is None else int(call["id"])

    def _stack(self, frames: tuple[tuple[str, int, str], ...]) -> int:
        for frame in frames:
            self._frames.setdefault(frame, len(self._frames))
        return self._stacks.setdefault(frames, len(self._stacks))


def _table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    columns = [column for column in TABLES[name].schema if any(column.name in row for row in rows)]
    return pa.table(
        {
            column.name: pa.array(
                [row.get(column.name) for row in rows],
                pa.string() if pa.types.is_dictionary(column.type) else column.type,
            )
            for column in columns
        }
    )
