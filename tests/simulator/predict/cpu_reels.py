"""CPU reels made by hand: ops and what they allocate, in order. What a GPU would reserve can be read off them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from torchreel.reel import Reel, load
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process

MIB = 1 << 20


class CpuProgram:
    """One process with one thread; each event is a nanosecond after the one before."""

    def __init__(self) -> None:
        self.ops: list[dict[str, Any]] = []
        self.allocs: list[dict[str, Any]] = []
        self.inputs: list[dict[str, Any]] = []
        self._time = 1_000
        self._total = 0

    def _now(self) -> int:
        self._time += 1
        return self._time

    def op(
        self,
        name: str,
        *sizes: int,
        thread: int = 0,
        dims: Sequence[Any] = (),
        strides: Sequence[Any] = (),
        dtypes: Sequence[str] = (),
        scalars: Sequence[str] = (),
        frees: bool = False,
        backward: bool = False,
    ) -> list[int]:
        """A call that allocates; the ids of the blocks that it leaves."""
        if backward:
            self.ops.append(self._row("autograd::engine::evaluate_function: MmBackward0", thread, 100))
        row = self._row(name, thread, 50)
        if dims:
            row["inputs"] = len(self.inputs)
            lists = {"dims": dims, "strides": strides, "dtypes": dtypes, "scalars": scalars}
            texts = {column: json.dumps(list(values)) for column, values in lists.items()}
            self.inputs.append({"id": row["inputs"], **texts})
        self.ops.append(row)
        blocks = [self.alloc(size, op=row["id"]) for size in sizes]
        if frees:
            for block in blocks:
                self.free(block)
        self._time = row["start_ns"] + 100
        return [] if frees else blocks

    def _row(self, name: str, thread: int, dur_ns: int) -> dict[str, Any]:
        id = len(self.ops)
        times = {"start_ns": self._now(), "dur_ns": dur_ns}
        return {"id": id, "name": name, "overload": "", "thread": thread, "kind": "op", "inputs": None, **times}

    def alloc(self, size: int, action: str = "alloc", op: int | None = None, device: str = "cpu") -> int:
        self._total += size
        return self._event(action, size, op=op, device=device)

    def free(self, block: int) -> None:
        size = self.allocs[block]["size"]
        self._total -= size
        self._event("free", size, alloc=block)

    def _event(self, action: str, size: int, device: str = "cpu", **others: Any) -> int:
        id = len(self.allocs)
        fields = {"addr": 64 * id, "total": self._total, "device": device, "op": None, "alloc": None, **others}
        self.allocs.append({"id": id, "time_ns": self._now(), "action": action, "size": size, **fields})
        return id

    def write(self, path: Path, **process: Any) -> Reel:
        header = {"name": "host-1", "complete": True, "lost_events": 0, "torch_version": "2.13.0+cpu", **process}
        tables = {"ops": self.ops, "allocs": self.allocs, "inputs": self.inputs, "processes": [header]}
        write_process(path / "host-1", {name: pa.Table.from_pylist(rows) for name, rows in tables.items() if rows})
        write_meta(path, {"root": "host-1"})
        return load(path)
