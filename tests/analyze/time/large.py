"""A reel of any number of ops, made fast: one step of a model with its modules, repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.synthetic import START, Call, Process, call
from torchreel.reel.meta import write_meta
from torchreel.reel.tables import OPS
from torchreel.reel.write import ProcessWriter

_STEPS_AT_ONCE = 50


def _linear(module: str, number: int) -> Call:
    fields: dict[str, Any] = {"module": module, "stack": (("/src/model.py", number, "forward"),), "bytes": 64}
    transposed = call("aten::t", 900, call("aten::transpose", 700, **fields), inputs=f"[[{number}, 3]]", **fields)
    product = call("aten::addmm", 9000, inputs=f"[[{number}, 3], [3, 4]]", flops=24 * number, **fields)
    return call("aten::linear", 800, transposed, product, inputs=f"[[{number}, 3], [4, 3]]", **fields)


def _block(number: int) -> Call:
    parts = []
    for name in ("query", "key", "value", "out", "up", "down"):
        module = f"Net.{number}.{name}"
        calls = [_linear(module, 3 * number + turn) for turn in range(3)]
        calls += [call(f"aten::{name}_{turn}", 500, module=module, bytes=-64) for turn in range(12)]
        parts.append(call("nn.Module: Linear", 300, *calls, kind="module", module=module))
    return call("nn.Module: Block", 400, *parts, kind="module", module=f"Net.{number}")


def _step() -> Process:
    forward = call("step", 5000, *(_block(number) for number in range(12)), kind="range")
    backward = [
        call(
            f"autograd::engine::evaluate_function: Node{number % 40}Backward0",
            600,
            call(
                f"Node{number % 40}Backward0",
                400,
                *(call(f"aten::back_{turn}", 2000) for turn in range(3)),
                kind="backward",
            ),
            kind="backward",
            module=f"Net.{number % 12}",
        )
        for number in range(300)
    ]
    return Process({"MainThread": [forward], "pt_autograd_0": backward})


def write_large_reel(path: Path, ops: int) -> Path:
    """A reel of about this many ops, in one process."""
    tables = _step().tables()
    step = OPS.schema.empty_table() if "ops" not in tables else tables.pop("ops")
    rows = step.num_rows
    steps = ops // rows + 1
    with ProcessWriter(path / "host-1") as writer:
        for first in range(0, steps, _STEPS_AT_ONCE):
            numbers = np.repeat(np.arange(first, min(first + _STEPS_AT_ONCE, steps)), rows)
            writer.write("ops", _repeated(step, numbers, rows))
        for name, table in tables.items():
            writer.write(name, table)
    write_meta(path, {"root": "host-1"})
    return path


def _repeated(step: pa.Table, numbers: np.ndarray[Any, Any], rows: int) -> pa.Table:
    table = pa.concat_tables([step] * (len(numbers) // rows)).combine_chunks()
    noise = np.random.default_rng(0).integers(0, 500, len(numbers))
    shifts = {
        "id": numbers * rows,
        "parent": numbers * rows,
        "start_ns": numbers * 10**7,
        "self_ns": noise,
        "dur_ns": noise,
    }
    for name, shift in shifts.items():
        index = table.schema.get_field_index(name)
        values = pc.add(table.column(name), pa.array(shift, pa.int64()))
        table = table.set_column(index, name, values)
    numbered = pa.array(numbers.astype(np.int32))
    table = table.set_column(table.schema.get_field_index("step"), "step", numbered)
    assert table.column("start_ns")[0].as_py() >= START
    return table
