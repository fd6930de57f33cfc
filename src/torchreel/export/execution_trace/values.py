"""Arguments and results of ops as an execution trace writes them: values, shapes, types and strides, side by side."""

from __future__ import annotations

import math
from typing import Any

from torchreel.program import Program
from torchreel.program.dtypes import ITEM_BYTES
from torchreel.program.model import (
    Complex,
    Device,
    Formula,
    Generator,
    Named,
    Object,
    Ref,
    StorageOf,
    Value,
)
from torchreel.program.scalar_types import NUMBERS

# The C++ types of elements, as torch names them.
_ELEMENTS = {
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short int",
    "int32": "int",
    "int64": "long int",
    "uint16": "short unsigned int",
    "uint32": "unsigned int",
    "uint64": "long unsigned int",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "float32": "float",
    "float64": "double",
    "complex32": "c10::complex<c10::Half>",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
    "bool": "bool",
    **{f"{sign}int{bits}": f"c10::dummy_{sign}int1_7_t<{bits}>" for sign in ("", "u") for bits in range(1, 8)},
}

# Of these a trace says only that they were there.
_UNSHOWN: dict[type, str] = {Complex: "ComplexDouble", StorageOf: "Storage", Generator: "Generator", Object: "Object"}

# A value, its shape, its type, its strides.
_Row = tuple[Any, list[Any], str, list[Any]]


class Ids:
    """One counter for nodes, tensors and storages."""

    def __init__(self) -> None:
        self._last = 0

    def new(self) -> int:
        self._last += 1
        return self._last


class Values:
    def __init__(self, program: Program, ids: Ids) -> None:
        self._program = program
        self._ids = ids
        self._tensors: dict[int, int] = {}  # by slot
        self._storages: dict[int, int] = {}

    def table(self, values: list[Value]) -> dict[str, Any]:
        """The values of an op, column by column."""
        rows = [self._row(value) for value in values]
        return {name: [row[at] for row in rows] for at, name in enumerate(("values", "shapes", "types", "strides"))}

    def _row(self, value: Value) -> _Row:
        if isinstance(value, list):
            rows = [self._row(part) for part in value]
            kinds = ",".join(row[2] for row in rows)
            return [row[0] for row in rows], [row[1] for row in rows], f"GenericList[{kinds}]", [row[3] for row in rows]
        if isinstance(value, Ref):
            return self._tensor(value.slot)
        shown, kind = _scalar(value)
        return shown, [], kind, []

    def _tensor(self, index: int) -> _Row:
        slot = self._program.slots[index]
        if index not in self._tensors:
            self._tensors[index] = self._ids.new()
        kind = f"Tensor({_element(slot.dtype)})"
        if slot.layout != "strided":
            return [self._tensors[index], 0, 0, 0, 0, ""], list(slot.sizes), kind, [0] * len(slot.sizes)
        if slot.storage not in self._storages:
            self._storages[slot.storage] = self._ids.new()
        storage = self._storages[slot.storage]
        elements = math.prod(slot.sizes)
        shown = [self._tensors[index], storage, slot.offset, elements, ITEM_BYTES[slot.dtype], slot.device]
        return shown, list(slot.sizes), kind, list(slot.strides)


def _element(dtype: str) -> str:
    if dtype in _ELEMENTS:
        return _ELEMENTS[dtype]
    return f"c10::{dtype[0].upper()}{dtype[1:]}" if dtype.startswith("float") else f"c10::{dtype}"


def _scalar(value: Any) -> tuple[Any, str]:
    """A value that is no tensor, and its type."""
    if isinstance(value, Formula):
        value = value.value
    if value is None:
        return "<None>", "None"
    if isinstance(value, Named):
        return NUMBERS[value.kind].get(value.name, -1), "Int"
    if isinstance(value, Device):
        return value.name, "Device"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value), "Double"
    if type(value) in _UNSHOWN:
        return f"<{_UNSHOWN[type(value)]}>", _UNSHOWN[type(value)]
    return value, {bool: "Bool", int: "Int", str: "String"}[type(value)]
