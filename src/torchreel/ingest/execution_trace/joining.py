"""Ops of a trace and nodes of an execution trace of the same run: each gets what the other knows."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.ingest.execution_trace.nodes import ExecutionTrace, Node
from torchreel.ingest.kineto.columns import Codes, plain
from torchreel.ingest.kineto.trace import Trace
from torchreel.reel.columns import ints

_TENSOR = re.compile(r"Tensor\((.*)\)")
_LISTS = (("GenericList[Tensor", "TensorList"), ("GenericList[", "ScalarList"))
_SCALARS = ("Int", "Double", "Bool", "Complex")
# Of what both know by number, so much must have the same names: else they are of different runs.
_ALIKE = 0.9


def join(trace: Trace, execution: ExecutionTrace) -> int:
    """Put what an execution trace knows into the tables of a trace; how many ops it knew."""
    ops = trace.tables["ops"]
    names = ops["name"].to_pylist()
    numbers = ints(ops, "record_id").tolist()
    known = [(row, execution.nodes[number]) for row, number in enumerate(numbers) if number in execution.nodes]
    alike = [(row, node) for row, node in known if node.name == names[row]]
    if len(alike) < _ALIKE * len(known) or not alike:
        return 0
    trace.tables["ops"] = _with_inputs(trace, ops, alike)
    return len(alike)


def _with_inputs(trace: Trace, ops: pa.Table, found: list[tuple[int, Node]]) -> pa.Table:
    inputs = trace.tables["inputs"]
    fresh = Codes()
    ids = ops["inputs"].to_pylist()
    args, overloads = ops["args"].to_pylist(), ops["overload"].to_pylist()
    for row, node in found:
        if ids[row] is None:
            ids[row] = inputs.num_rows + fresh[_input_row(node)]
        args[row] = _with_outputs(args[row], node)
        overloads[row] = overloads[row] or node.overload
    added = pa.table(
        {
            "id": pa.array(np.arange(len(fresh)) + inputs.num_rows, pa.int32()),
            **{
                name: pa.array([row[place] for row in fresh], pa.string())
                for place, name in enumerate(("dims", "dtypes", "scalars"))
            },
        }
    )
    trace.tables["inputs"] = pa.concat_tables([inputs, added], promote_options="default")
    for name, values in (("inputs", ids), ("args", args), ("overload", overloads)):
        kind = pa.int32() if name == "inputs" else pa.string()
        column = pa.array(values, kind)
        ops = ops.set_column(
            ops.schema.get_field_index(name), name, column if name == "inputs" else column.dictionary_encode()
        )
    return ops


def _input_row(node: Node) -> tuple[str, str, str]:
    """Dims, dtypes and values as the table inputs has them."""
    kinds = [_kind(kind) for kind in node.types]
    dims = [
        shape if kind not in ("Scalar", "ScalarList", "") else [] for shape, kind in zip(node.dims, kinds, strict=False)
    ]
    scalars = [
        _scalar(value) if kind in ("Scalar", "ScalarList", "") else ""
        for value, kind in zip(node.values, kinds, strict=False)
    ]
    return plain(json.dumps(dims)), plain(json.dumps(kinds)), plain(json.dumps(scalars))


def _kind(kind: Any) -> str:
    """A type as a trace names it: float for Tensor(float), Scalar, ScalarList, TensorList, or nothing."""
    text = kind if type(kind) is str else ""
    match = _TENSOR.fullmatch(text)
    if match:
        return match[1]
    for begin, name in _LISTS:
        if text.startswith(begin):
            return name
    return "Scalar" if text in _SCALARS else ""


def _scalar(value: Any) -> str:
    if value == "<None>" or value is None:
        return ""
    return value if type(value) is str else json.dumps(value)


def _with_outputs(args: str | None, node: Node) -> str | None:
    """What a trace never has: what the call gave."""
    if not node.output_types:
        return args
    outputs = {"Output Dims": node.output_dims, "Output type": [_kind(kind) for kind in node.output_types]}
    return plain(json.dumps({**(json.loads(args) if args else {}), **outputs}))
