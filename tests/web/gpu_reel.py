"""A reel of ranks with kernels on two streams, collectives, flows, marks and counters, as docs/format.md has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from torchreel.reel import TABLES
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process

START = 1_700_000_000_000_000_000
STEP_NS = 40_000_000
LAYERS = 6
FORWARD = (("aten::linear", "ampere_sgemm_128x64_tn", 900_000), ("aten::layer_norm", "layer_norm_kernel", 200_000))


class Rank:
    """The tables of one rank."""

    def __init__(self, rank: int, steps: int) -> None:
        self.rank = rank
        self.tables: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("ops", "kernels", "flows", "marks", "counters", "steps", "allocs", "modules")
        }
        self._device_free = {7: START, 20: START}
        for step in range(steps):
            self._step(step)
        end = START + steps * STEP_NS + 1_000_000
        self.tables["threads"] = [
            {"id": 0, "os_id": 1000 + rank, "torch_id": 1, "name": "MainThread"},
            {"id": 1, "os_id": 2000 + rank, "torch_id": 2, "name": "pt_autograd_0"},
        ]
        self.tables["processes"] = [
            {
                "name": f"rank{rank:05}-node-{100 + rank}",
                "pid": 100 + rank,
                "host": "node",
                "rank": rank,
                "world_size": 4,
                "torch_version": "2.13.0+cu130",
                "command": "train.py",
                "start_ns": START,
                "end_ns": end,
                "complete": True,
                "lost_events": 0,
            }
        ]

    def _op(self, name: str, start: int, length: int, **fields: Any) -> int:
        number = len(self.tables["ops"])
        row = {"id": number, "thread": 0, "name": name, "kind": "op", "depth": 0, "start_ns": start, "dur_ns": length}
        self.tables["ops"].append({**row, "self_ns": length, "async": False, "open": False, **fields})
        if fields.get("depth", 0) == 0:
            for counter, rate in (("instructions", 2), ("cycles", 3)):
                self.tables["counters"].append({"op": number, "name": counter, "value": rate * length})
        return number

    def _kernel(self, name: str, stream: int, earliest: int, length: int, op: int) -> int:
        start = max(earliest, self._device_free[stream])
        self._device_free[stream] = start + length
        row = {"id": len(self.tables["kernels"]), "device": f"cuda:{self.rank}", "stream": stream, "name": name}
        self.tables["kernels"].append({**row, "start_ns": start, "dur_ns": length, "op": op})
        return start + length

    def _step(self, step: int) -> None:
        begin = now = START + step * STEP_NS
        self.tables["steps"].append({"step": step, "start_ns": begin, "end_ns": begin + STEP_NS})
        forwards = []
        for _ in range(LAYERS):
            for name, kernel, length in FORWARD:
                op = self._op(name, now, 60_000, step=step, seq=len(forwards))
                forwards.append(op)
                self._kernel(kernel, 7, now + 8_000, length, op)
                now += 80_000
        for op in reversed(forwards):
            backward = self._op(
                "AddmmBackward0", now, 90_000, kind="backward", thread=1, step=step, fwd=op, fwd_thread=0, seq=0
            )
            end = self._kernel("ampere_sgemm_128x64_nt", 7, now + 9_000, 1_100_000, backward)
            now += 110_000
            if op % 4 == 0:
                reduce = self._op("c10d::allreduce_", now, 30_000, thread=1, step=step)
                self._kernel("ncclDevKernel_AllReduce_Sum_f32", 20, end, 1_500_000, reduce)
                self._flow(step, reduce, now)
                now += 40_000
        self.tables["marks"].append({"thread": 0, "time_ns": begin + 1_000, "name": f"batch {step}", "op": None})

    def _flow(self, step: int, op: int, moment: int) -> None:
        """Rank 0 tells the others: an arrow from its collective to theirs."""
        for other in range(1, 4):
            if self.rank in (0, other):
                number = ((step * 1000) + len([f for f in self.tables["flows"] if f["op"] != op])) * 4 + other
                end = "out" if self.rank == 0 else "in"
                row = {"id": number, "name": "collective", "end": end, "thread": 1, "time_ns": moment, "op": op}
                self.tables["flows"].append(row)


def write_ranks(path: Path, ranks: int = 4, steps: int = 5) -> Path:
    path.mkdir(parents=True)
    for rank in range(ranks):
        tables = {
            name: pa.Table.from_pylist(rows, schema=TABLES[name].schema)
            for name, rows in Rank(rank, steps).tables.items()
        }
        write_process(path / f"rank{rank:05}-node-{100 + rank}", tables)
    write_meta(path, {"root": None})
    return path
