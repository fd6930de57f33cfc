"""Histories of memory written by hand: events in, a device's memory out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from torchreel.analyze.memory.model.device import DeviceMemory, device_memories
from torchreel.reel import TABLES, load
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process

EPOCH = 1_790_900_000_000_000_000
SITE = "/env/lib/python3.11/site-packages"
MODULE_CALL = (f"{SITE}/torch/nn/modules/module.py", 1750, "_call_impl")
BACKWARD_CALL = (f"{SITE}/torch/autograd/graph.py", 800, "backward")
STEP_CALL = (f"{SITE}/torch/optim/optimizer.py", 500, "wrapper")

Frames = tuple[tuple[str, int, str], ...]


def user(line: int, function: str = "main", file: str = "/home/user/train.py") -> tuple[str, int, str]:
    return file, line, function


class Trace:
    """One process with one device: what its allocator did, event after event, a microsecond apart."""

    def __init__(self, device: str = "cuda:0", times: bool = True) -> None:
        self.device = device
        self.times = times
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self._frames: dict[tuple[str, int, str], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self.add("processes", name="host-1", pid=1)

    def add(self, table: str, **row: Any) -> None:
        self.rows[table].append(row)

    def stack(self, frames: Frames | None) -> int | None:
        if frames is None:
            return None
        key = tuple(self._frames.setdefault(frame, len(self._frames)) for frame in frames)
        return self._stacks.setdefault(key, len(self._stacks))

    @property
    def now(self) -> int:
        return EPOCH + 1000 * len(self.rows["allocs"])

    def event(self, action: str, addr: int | None, size: int, frames: Frames | None = None, **fields: Any) -> None:
        row = {"device": self.device, "action": action, "addr": addr, "size": size, "stack": self.stack(frames)}
        time = self.now if self.times else None
        self.add("allocs", id=len(self.rows["allocs"]), time_ns=time, **{**row, **fields})

    def alloc(self, addr: int, size: int, *frames: tuple[str, int, str], **fields: Any) -> None:
        self.event("alloc", addr, size, frames or None, **fields)

    def free(self, addr: int, size: int) -> None:
        self.event("free_requested", addr, size)
        self.event("free_completed", addr, size)

    def annotate(self, name: str, stage: str) -> None:
        self.add("annotations", device=self.device, time_ns=self.now, name=name, stage=stage)

    def segment(self, address: int, size: int, *blocks: tuple[int, str], type: str = "large", **fields: Any) -> None:
        """A segment of the final state, cut into blocks of (size, state)."""
        row = {"device": self.device, "address": address, "size": size, "type": type, "expandable": False}
        self.add("segments", **{**row, **fields})
        for length, state in blocks:
            self.block(address, length, state)
            address += length

    def block(self, address: int, size: int, state: str = "active_allocated", **fields: Any) -> None:
        self.add("blocks", device=self.device, address=address, size=size, state=state, **{"requested": size, **fields})

    def write(self, path: Path) -> Path:
        self.rows["stacks"] = [{"id": number, "frames": list(key)} for key, number in self._stacks.items()]
        self.rows["frames"] = [
            {"id": number, "file": file, "line": line, "function": function}
            for (file, line, function), number in self._frames.items()
        ]
        path.mkdir(parents=True)
        write_meta(path, {"root": "host-1"})
        write_process(path / "host-1", {name: _table(name, rows) for name, rows in self.rows.items() if rows})
        return path

    def memory(self, directory: Path) -> DeviceMemory:
        (memory,) = device_memories(load(self.write(directory / "trace.reel")))
        return memory


def _table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    schema = TABLES[name].schema
    return pa.table(
        {field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in schema}, schema=schema
    )
