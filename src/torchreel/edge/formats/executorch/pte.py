"""An ExecuTorch program as its file says it: methods, their instructions, what they need. Nothing of it is run."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchreel._torch.dispatch import find_schema
from torchreel.edge.formats.adapter import TensorType
from torchreel.edge.formats.executorch.flatbuffer import Buffer, FlatbufferError, Table
from torchreel.edge.formats.executorch.op_call import Argument, OpCall
from torchreel.errors import EdgeError

_IDENTIFIER = b"ET12"
# Behind the identifier a header may say its own length, how much of the file is the program, where the weights after
# it begin and, in later releases, how much of the file they are.
_HEADER = struct.Struct("<4sIQQQ")
_HEADER_MAGIC = b"eh00"
_KERNEL_CALL, _DELEGATE_CALL = 1, 2
_STATIC = 0

SCALAR_TYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    11: "bool",
    12: "qint8",
    13: "quint8",
    14: "qint32",
    15: "bfloat16",
    27: "uint16",
    28: "uint32",
    29: "uint64",
}


@dataclass(frozen=True)
class Input:
    """One argument of a method."""

    type: TensorType
    """A number has no sizes."""
    is_tensor: bool
    is_static: bool
    """If not, the sizes are the largest that it takes."""
    value: int | None = None
    """The one number that it takes, the one that it was exported with; None if it is not known."""


@dataclass(frozen=True)
class Instruction:
    """One step of a method: an operator or a delegate is called."""

    operator: str | None = None
    """With overload: aten::add.out."""
    delegate: str | None = None
    call: OpCall | None = None
    """What the operator is given, if all its sizes are known before it runs."""


@dataclass(frozen=True)
class Method:
    """One entry of the program."""

    name: str
    inputs: tuple[Input, ...]
    instructions: dict[int, Instruction]
    """By their numbers, as the runtime counts them."""
    operators: tuple[str, ...]
    delegates: tuple[str, ...]
    planned_bytes: int
    """What was planned for its tensors when it was exported; the runtime reserves it before the first call."""


def read_methods(source: Path | bytes) -> dict[str, Method]:
    """The methods of a program, by their names."""
    try:
        data = source if isinstance(source, bytes) else _program(source)
        root = Buffer(data).root(_IDENTIFIER)
        methods = [_method(plan) for plan in root.tables(1)]
    except (FlatbufferError, OSError) as error:
        name = "The program" if isinstance(source, bytes) else str(source)
        raise EdgeError(
            f"{name} is no ExecuTorch program that can be read: {error}. "
            "Export it again with executorch.exir, and give the .pte file."
        ) from error
    return {method.name: method for method in methods}


def _program(path: Path) -> bytes:
    """The file without its weights."""
    with path.open("rb") as file:
        start = file.read(8 + _HEADER.size)
        size = -1
        if len(start) == 8 + _HEADER.size:
            magic, length, said, weights, weight_bytes = _HEADER.unpack_from(start, 8)
            if magic == _HEADER_MAGIC:
                _check_whole(path, max(said, weights + weight_bytes if length >= _HEADER.size else 0))
                size = said
        file.seek(0)
        return file.read(size)


def _check_whole(path: Path, size: int) -> None:
    held = path.stat().st_size
    if held < size:
        raise EdgeError(
            f"{path} has {held:,} of the {size:,} bytes that it says it has, so its end is missing: copy it again, or "
            "export it again."
        )


def _method(plan: Table) -> Method:
    values = list(plan.tables(2))
    operators = tuple(_operator(one) for one in plan.tables(6))
    delegates = tuple(one.text(0) or "" for one in plan.tables(7))
    chain = next(plan.tables(5), None)
    steps = () if chain is None else chain.tables(2)
    return Method(
        name=plan.text(0) or "",
        inputs=tuple(_input(_at(values, index)) for index in plan.integers(3, "i")),
        instructions={
            number: instruction
            for number, step in enumerate(steps)
            if (instruction := _instruction(step, values, operators, delegates)) is not None
        },
        operators=operators,
        delegates=delegates,
        planned_bytes=sum(max(size, 0) for size in plan.integers(8, "q")),
    )


def _at(entries: Any, index: int) -> Any:
    if not 0 <= index < len(entries):
        raise FlatbufferError(f"number {index} of a list of {len(entries)} is meant")
    return entries[index]


def _operator(table: Table) -> str:
    name, overload = table.text(0) or "", table.text(1)
    return f"{name}.{overload}" if overload else name


def _instruction(
    step: Table, values: list[Table], operators: tuple[str, ...], delegates: tuple[str, ...]
) -> Instruction | None:
    kind, call = step.integer(0, "B"), step.table(1)
    if call is None:
        return None
    if kind == _KERNEL_CALL:
        operator = _at(operators, call.integer(0, "i"))
        return Instruction(operator=operator, call=_call(operator, call.integers(1, "i"), values))
    if kind == _DELEGATE_CALL:
        return Instruction(delegate=_at(delegates, call.integer(0, "i")))
    return None


def _call(operator: str, indices: list[int], values: list[Table]) -> OpCall | None:
    """The arguments come in the schema's order, the output's tensors last; what it returns is there a second time."""
    name, _, overload = operator.partition(".")
    schema = _schema(name, overload)
    if schema is None:
        return None
    given = sum(not argument.is_out for argument in schema.arguments)
    arguments = [_value(_at(values, index)) for index in indices[: given + 1]]
    if any(argument is _UNKNOWN for argument in arguments):
        return None
    output = arguments[given] if len(arguments) > given else None
    placed = sum(not (argument.is_out or argument.kwarg_only) for argument in schema.arguments)
    return OpCall(name, tuple(arguments[:placed]), output if isinstance(output, TensorType) else None)


def _schema(name: str, overload: str) -> Any:
    try:
        return find_schema(name, overload)
    except RuntimeError:  # an op of another library
        return None


_UNKNOWN: Any = object()
"""A tensor whose sizes are known when it is there."""


def _value(entry: Table) -> Argument:
    read = _VALUES.get(entry.integer(0, "B"))
    value = entry.table(1)
    return None if read is None or value is None else read(value)


def _tensor(table: Table) -> TensorType:
    return _tensor_type(table) if table.integer(8, "b") == _STATIC else _UNKNOWN


def _tensor_type(table: Table) -> TensorType:
    sizes = tuple(table.integers(2, "i"))
    if any(size < 0 for size in sizes):
        raise FlatbufferError(f"a tensor has the sizes {sizes}")
    return TensorType(sizes, _dtype(table.integer(0, "b")))


def _dtype(number: int) -> str:
    return SCALAR_TYPES.get(number, f"type {number}")


_TENSOR = 5
_NUMBERS = {2: "int64", 3: "bool", 4: "float64"}
_VALUES: dict[int, Callable[[Table], Argument]] = {
    2: lambda table: table.integer(0, "q"),
    3: lambda table: bool(table.integer(0, "B")),
    _TENSOR: _tensor,
}


def _input(entry: Table) -> Input:
    kind, value = entry.integer(0, "B"), entry.table(1)
    if kind == _TENSOR and value is not None:
        return Input(_tensor_type(value), True, value.integer(8, "b") == _STATIC)
    number = _value(entry)
    type = TensorType((), _NUMBERS.get(kind, "object"))
    return Input(type, False, True, number if isinstance(number, int) else None)
