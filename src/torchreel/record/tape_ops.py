"""The ops of the tapes in a process's part of a reel, each with the row of `ops` that is its call.

An op of a tape knows when it was called: the innermost call of its name that was open then, on its thread, is its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from torchreel.program.file.file import read_tape
from torchreel.program.model import Op, Program
from torchreel.program.query.source_frames import source_frame
from torchreel.program.text.op import values_text
from torchreel.reel.tables import OPS, TAPE_OPS
from torchreel.reel.write import ProcessWriter

_COLUMNS = ["id", "parent", "thread", "name", "overload", "start_ns", "dur_ns"]
_MOST_WITNESSES = 64


def write_tape_ops(directory: Path) -> None:
    """Make the table of all tapes that the process left."""
    calls = directory / f"{OPS.name}.parquet"
    with ProcessWriter(directory) as writer:
        for path in sorted(directory.glob("step-*.tape")):
            step = path.stem.removeprefix("step-")
            program = read_tape(path).program
            rows = _read_calls(calls, int(step)) if step.isdigit() and calls.exists() else []
            writer.write(TAPE_OPS.name, _table(path.name, program, _joined(program, rows)))


class _Calls:
    """The calls of one thread in one step, in the order of their beginnings."""

    def __init__(self, table: pa.Table) -> None:
        table = table.sort_by("start_ns")
        self._ids = table.column("id").to_pylist()
        named = zip(table.column("name").to_pylist(), table.column("overload").to_pylist(), strict=True)
        self._names = [f"{name}.{overload}" if overload else name for name, overload in named]
        self.starts = table.column("start_ns").to_numpy()
        self._ends = self.starts + table.column("dur_ns").to_numpy()
        indices = {number: index for index, number in enumerate(self._ids)}
        self._parents = [indices.get(parent, -1) for parent in table.column("parent").to_pylist()]

    def find(self, ops: list[Op], offset: int = 0) -> list[int | None]:
        """For each op the id of its call; None where no call of its name was open."""
        times = np.array([op.time_ns for op in ops], dtype=np.int64) + offset
        indices = np.searchsorted(self.starts, times, side="right") - 1
        return [
            None if op.inserted else self._innermost(op.name, int(time), int(index))
            for op, time, index in zip(ops, times, indices, strict=True)
        ]

    def _innermost(self, name: str, time: int, index: int) -> int | None:
        while index >= 0:
            if self._ends[index] >= time and self._names[index] == name:
                return int(self._ids[index])
            index = self._parents[index]
        return None

    def offset(self, ops: list[Op]) -> int:
        """How far the clocks of tape and recording are apart: what puts the most ops within calls of their names."""
        indices: dict[str, list[int]] = {}
        for index, name in enumerate(self._names):
            indices.setdefault(name, []).append(index)
        named = sorted((op for op in ops if op.name in indices), key=lambda op: len(indices[op.name]))
        edges = []
        for op in named[:_MOST_WITNESSES]:  # rare names say the most
            for index in indices[op.name]:
                edges.append((int(self.starts[index]) - op.time_ns, 1))
                edges.append((int(self._ends[index]) - op.time_ns, -1))
        return _most_covered(sorted(edges))


def _most_covered(edges: list[tuple[int, int]]) -> int:
    """The middle of where the most spans overlap, each given by its beginning (+1) and its end (-1)."""
    depth = deepest = middle = 0
    for (at, change), (following, _) in itertools.pairwise(edges):
        depth += change
        if depth > deepest:
            deepest, middle = depth, (at + following) // 2
    return middle


def _read_calls(path: Path, step: int) -> list[_Calls]:
    table = pq.read_table(path, columns=_COLUMNS, filters=[("step", "=", step)])
    threads = pc.unique(table.column("thread")).to_pylist()
    return [_Calls(table.filter(pc.equal(table.column("thread"), thread))) for thread in threads]


def _joined(program: Program, threads: list[_Calls]) -> dict[int, int]:
    """The id of the call of each op, by the op's index."""
    joined: dict[int, int] = {}
    for number in {op.thread for op in program.ops}:
        indices = [index for index, op in enumerate(program.ops) if op.thread == number]
        ops = [program.ops[index] for index in indices]
        found = _best(ops, threads)
        joined |= {index: call for index, call in zip(indices, found, strict=True) if call is not None}
    return joined


def _best(ops: list[Op], threads: list[_Calls]) -> list[int | None]:
    """On the thread where most of them are found; the wall clock may have been set since the recording began."""
    best: list[int | None] = [None] * len(ops)
    wanted = sum(not op.inserted for op in ops)
    for found in _trials(ops, threads):
        if _count(found) > _count(best):
            best = found
        if _count(best) == wanted:
            break
    return best


def _trials(ops: list[Op], threads: list[_Calls]) -> Iterator[list[int | None]]:
    for calls in threads:
        yield calls.find(ops)
    for calls in threads:
        yield calls.find(ops, calls.offset(ops))


def _count(found: list[int | None]) -> int:
    return sum(call is not None for call in found)


def _table(tape: str, program: Program, joined: dict[int, int]) -> pa.Table:
    rows = [_row(tape, program, index, joined.get(index)) for index in range(len(program.ops))]
    return pa.Table.from_pylist(rows, schema=TAPE_OPS.schema)


def _row(tape: str, program: Program, index: int, call: int | None) -> dict[str, Any]:
    op = program.ops[index]
    frame = source_frame(program, op)
    return {
        "tape": tape,
        "index": index,
        "name": op.name,
        "op": call,
        "module": program.modules[op.module].path if op.module >= 0 else None,
        "file": frame.file if frame is not None else None,
        "line": frame.line if frame is not None else None,
        "backward": op.backward,
        "forward": op.forward if op.forward >= 0 else None,
        "inserted": op.inserted,
        "inputs": values_text(program, op.args),
        "outputs": values_text(program, op.results),
    }
