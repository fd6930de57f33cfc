"""FLOPs of recorded ops by torch.utils.flop_counter's formulas, when a reel is closed.

An op is counted once for each distinct list of inputs: its arguments are made again as tensors on
the meta device, which have shapes and no data, and the formula is given them and the op's result.
Where ops with formulas are nested in each other the outermost has the count, so that sums are right.
With `whole_ops`, what has no formula (aten::conv2d, aten::lstm) is itself run on the meta device, and what
it calls there is counted: kernels that fuse, and runtimes that record whole ops only, have counts, too.
Arguments that a runtime leaves out at the end of a call, because they have their defaults, have them here.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from torchreel._torch.dispatch import packet_name, schema_of

# CPU variants of ops whose formulas are registered under their CUDA names only.
_SAME_FORMULA = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": torch.ops.aten._scaled_dot_product_flash_attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (
        torch.ops.aten._scaled_dot_product_flash_attention_backward
    ),
}
_DTYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "c10::Half": torch.float16,
    "c10::BFloat16": torch.bfloat16,
    "long int": torch.int64,
    "int": torch.int32,
    "bool": torch.bool,
    "c10::complex<float>": torch.complex64,
    "c10::complex<double>": torch.complex128,
}


def _formulas() -> dict[str, Callable[..., int]]:
    formulas = {}
    for target, formula in flop_registry.items():
        name = packet_name(target)
        if name is not None:
            formulas[name] = formula
    for name, target in _SAME_FORMULA.items():
        if target in flop_registry:
            formulas[name] = flop_registry[target]
    return formulas


def _argument(dims: Any, strides: Any, dtype: str, scalar: str) -> Any:
    if dtype == "TensorList":
        return [torch.empty(sizes, device="meta") for sizes in dims]
    if dtype in ("Scalar", "ScalarList"):
        return float(scalar) if scalar in ("inf", "-inf", "nan") else ast.literal_eval(scalar)
    if dtype:
        return torch.empty_strided(dims, strides, dtype=_DTYPES.get(dtype, torch.float32), device="meta")
    return scalar or None


class FlopCounter:
    """Fills the column `flops` of a batch of ops."""

    def __init__(self, whole_ops: bool = False) -> None:
        self._formulas = _formulas()
        self._whole_ops = whole_ops
        self._known: dict[tuple[str, str, int], int | None] = {}

    def __call__(self, ops: pa.Table, inputs: pa.Table) -> pa.Table:
        ops = ops.combine_chunks()
        names = ops.column("name").cast(pa.string())
        has_inputs = pc.is_valid(ops.column("inputs"))
        counts: dict[int, int] = {}
        if self._whole_ops:
            whole = _rows(pc.and_(pc.starts_with(names, "aten::"), has_inputs))
            counts = self._counts(ops, inputs, _outermost(ops, whole))
        formulas = _rows(pc.and_(pc.is_in(names, pa.array(self._formulas)), has_inputs))
        outermost = _outermost(ops, np.union1d(formulas, list(counts)).astype(np.int64))
        counts |= self._counts(ops, inputs, np.array([row for row in outermost if row not in counts], dtype=np.int64))
        flops = np.zeros(ops.num_rows, dtype=np.int64)
        valid = np.zeros(ops.num_rows, dtype=bool)
        for row, count in counts.items():
            flops[row], valid[row] = count, True
        column = pa.array(flops, mask=~valid)
        return ops.set_column(ops.schema.get_field_index("flops"), "flops", column)

    def _counts(self, ops: pa.Table, inputs: pa.Table, rows: np.ndarray[Any, Any]) -> dict[int, int]:
        """The counts of the rows for which there is one."""
        wanted = ops.select(["name", "overload", "inputs"]).take(pa.array(rows)).to_pylist()
        counts = (self._count(op["name"], op["overload"], op["inputs"], inputs) for op in wanted)
        return {int(row): count for row, count in zip(rows, counts, strict=True) if count is not None}

    def _count(self, name: str, overload: str, number: int, inputs: pa.Table) -> int | None:
        key = (name, overload, number)
        if key not in self._known:
            self._known[key] = self._compute(name, overload, inputs.slice(number, 1).to_pylist()[0])
        return self._known[key]

    def _compute(self, name: str, overload: str, row: dict[str, str]) -> int | None:
        columns = (json.loads(row[column]) for column in ("dims", "strides", "dtypes", "scalars"))
        try:
            arguments = [_argument(*parts) for parts in zip(*columns, strict=True)]
            packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
            op, schema = _overload(packet, overload)
            named = {
                argument.name: value for argument, value in zip(schema, arguments, strict=False) if argument.kwarg_only
            }
            placed = arguments[: len(arguments) - len(named)]
            if name not in self._formulas:
                return _count_inside(op, placed, named)
            with torch.no_grad():
                result = op(*placed, **named)
            return int(self._formulas[name](*placed, **named, out_val=result))
        except Exception:  # an op that the meta device does not know, arguments that were cut: no formula applies
            return None


def _rows(mask: Any) -> np.ndarray[Any, Any]:
    return np.flatnonzero(mask.to_numpy())


def _overload(packet: Any, overload: str) -> tuple[Any, list[Any]]:
    """What was called, with the arguments of its schema; where the overload is not known, torch finds it."""
    if not overload and "default" not in packet.overloads():
        return packet, []
    op = getattr(packet, overload or "default")
    return op, schema_of(op).arguments


def _count_inside(op: Any, placed: list[Any], named: dict[str, Any]) -> int | None:
    """The count of all that an op without a formula calls; None if nothing of it has a formula."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        op(*placed, **named)
    return counter.get_total_flops() or None


def _outermost(ops: pa.Table, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The rows that lie in no other of these rows."""
    if not len(rows):
        return rows
    ids = ops.column("id").to_numpy()
    parents = pc.fill_null(ops.column("parent"), -1).to_numpy()
    order = np.argsort(ids)
    counted = np.zeros(len(ids), dtype=bool)
    counted[rows] = True
    inside = np.zeros(len(rows), dtype=bool)
    current = parents[rows]
    while (current >= 0).any():
        found = np.minimum(np.searchsorted(ids, current, sorter=order), len(ids) - 1)
        position = order[found]
        present = (current >= 0) & (ids[position] == current)
        inside |= present & counted[position]
        current = np.where(present, parents[position], -1)
    return rows[~inside]
