"""Reels as EdgeProfiler makes them, by hand: calls of a model, what its backend measured, and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import torchreel
from tests.synthetic import START, Call, Process, call
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process


def run(self_ns: int, *ops: Call, name: str = "Net") -> Call:
    """One call of the model."""
    return call(name, self_ns, *ops, kind="module", module=name)


def edge_reel(
    path: Path,
    *runs: Call,
    threads: Mapping[str, Sequence[Call]] | None = None,
    backends: Mapping[str, str] | None = None,
    dtypes: Mapping[str, str] | None = None,
    allocs: Sequence[tuple[int, str, int, int | None]] = (),
    counters: Sequence[tuple[int, str, int]] = (),
) -> torchreel.Reel:
    """Write and open a reel.

    `backends` are those of ops by their names; `dtypes` go with dims; an alloc is (ns after the start, action, size, id
    of its op); a counter is (id of its op, name, value). Ids count calls in the order of the tree, from 0.
    """
    tables = Process({"MainThread": runs, **(threads or {})}).tables()
    ops = tables["ops"]
    names = [(backends or {}).get(name) for name in ops["name"].to_pylist()]
    tables["ops"] = ops.append_column("backend", pa.array(names, pa.string()))
    if "inputs" in tables:
        given = [(dtypes or {}).get(dims) for dims in tables["inputs"]["dims"].to_pylist()]
        tables["inputs"] = tables["inputs"].append_column("dtypes", pa.array(given, pa.string()))
    if allocs:
        tables["allocs"] = pa.Table.from_pylist(_allocs(allocs))
    if counters:
        tables["counters"] = pa.Table.from_pylist(
            [{"op": op, "name": name, "value": value} for op, name, value in counters]
        )
    path.mkdir(parents=True)
    write_process(path / "host-1", tables)
    write_meta(path, {"root": "host-1"})
    return torchreel.load(path)


def _allocs(events: Sequence[tuple[int, str, int, int | None]]) -> list[dict[str, Any]]:
    rows, total = [], 1000  # what the program had before the model ran
    for number, (after, action, size, op) in enumerate(events):
        total += -size if action == "free" else size
        rows.append(
            {
                **{"id": number, "time_ns": START + after, "device": "cpu", "action": action, "size": size},
                **{"total": total, "op": op, "thread": 0},
            }
        )
    return rows
