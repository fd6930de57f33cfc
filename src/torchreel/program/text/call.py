"""One op as a call in Python: its function, its arguments, and the names that its results get."""

from __future__ import annotations

import keyword
from dataclasses import dataclass

from torchreel.program.model import Complex, Formula, Generator, Object, Op, Program, Ref, Slot, StorageOf, Value
from torchreel.program.schema import Argument, arguments
from torchreel.program.text.literals import formula, plain, word
from torchreel.program.text.naming import base_name, slots_in

# Ops that take a Python number in the place of a tensor, and treat it as a number: torch.ops knows them by name.
NUMBERS_FOR_TENSORS = frozenset(
    name + end
    for name in ("add", "copy", "div", "divide", "floor_divide", "mul", "multiply", "sub", "subtract", "true_divide")
    for end in ("", "_")
) | {"_conj", "_to_copy", "to"}

# Ops whose results have sizes that depend on the values they are given: torch tags them so.
SIZED_BY_VALUES = frozenset(
    (
        *("_unique", "_unique2", "unique_consecutive", "unique_dim", "unique_dim_consecutive", "bincount", "one_hot"),
        *("argwhere", "index", "linalg_lstsq", "masked_select", "nonzero", "repeat_interleave", "_ctc_loss"),
    )
)

_DTYPES_OF_NUMBERS = {bool: "bool", int: "int64", float: "float64", Complex: "complex128"}


@dataclass(frozen=True)
class TextNames:
    """What things are called in the text."""

    slots: dict[int, str]
    numbers: dict[int, str]  # by the op that gave them
    generators: dict[int, str]
    spaces: dict[str, str]  # of ops: "aten"


class CallText:
    """Writes calls with the names that things have."""

    def __init__(self, program: Program, names: TextNames) -> None:
        self._program = program
        self._names = names
        self.helpers: set[str] = set()  # functions that the text needs beside those of torch

    def function(self, name: str) -> str:
        """`aten::add.Tensor` -> `aten.add.Tensor`."""
        space, _, rest = name.rpartition("::")
        op, _, overload = rest.partition(".")
        text = self._names.spaces.get(space) or f"torch.ops.{word(space)}"
        for part in (word(op), word(overload or "default")):
            text = f"getattr({text}, {part!r})" if keyword.iskeyword(part) else f"{text}.{part}"
        return text

    def arguments(self, op: Op) -> list[str]:
        """The arguments of the call, without those at the end that are what the op takes when nothing is given."""
        parameters = arguments(self._program.schemas.get(op.name, ""))
        positional, by_name = [], []
        for parameter, value in zip(self._padded(parameters, op), op.args, strict=True):
            text = self._argument(op, parameter, value)
            given = parameter is None or not parameter.is_default(value)
            if parameter is not None and parameter.keyword_only:
                by_name += [_keyword(parameter.name, text)] if given else []
            else:
                positional.append((text, given))
        while positional and not positional[-1][1]:
            positional.pop()
        return [text for text, _ in positional] + by_name

    def value(self, value: Value) -> str:
        """A value where no schema says what is wanted."""
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, Ref):
            return self._names.slots[value.slot]
        if isinstance(value, StorageOf):
            return f"{self._names.slots[value.slot]}.untyped_storage()"
        if isinstance(value, Generator):
            return self._names.generators[value.index]
        if isinstance(value, Object):
            return f"objects[{value.index}]"
        if isinstance(value, Formula):
            return formula(value, self._names.numbers)
        return plain(value)

    def names(self, op: Op, index: int) -> bool:
        """Whether the call speaks of a slot by its name, not by the number that it is."""
        parameters = self._padded(arguments(self._program.schemas.get(op.name, "")), op)
        given = [
            is_number(self._program, op, parameter, value)
            for parameter, value in zip(parameters, op.args, strict=True)
            if index in slots_in([value])
        ]
        return not given or not all(given)

    def written_slots(self, op: Op) -> set[int]:
        """The slots whose tensors the op itself writes to and gives back, so that they need no new name."""
        parameters = arguments(self._program.schemas.get(op.name, ""))
        pairs = zip(self._padded(parameters, op), op.args, strict=True)
        return {
            slot
            for parameter, value in pairs
            if parameter is not None and parameter.written
            for slot in slots_in([value])
        }

    def _padded(self, parameters: tuple[Argument, ...], op: Op) -> list[Argument | None]:
        return list(parameters) if len(parameters) == len(op.args) else [None] * len(op.args)

    def _argument(self, op: Op, parameter: Argument | None, value: Value) -> str:
        if isinstance(value, Ref) and is_number(self._program, op, parameter, value):
            return plain(self._program.slots[value.slot].number)
        if isinstance(value, Formula) and parameter is not None and parameter.is_tensor and not takes_numbers(op):
            self.helpers.add("number_of")
            return f"number_of({self.value(value)})"
        return self.value(value)


def is_number(program: Program, op: Op, parameter: Argument | None, value: Value) -> bool:
    """Whether a tensor that torch made of a number may be given as the number that it was."""
    if not isinstance(value, Ref) or parameter is None or not parameter.is_tensor:
        return False
    return takes_numbers(op) and is_literal(program.slots[value.slot])


def is_sized_by_values(program: Program, op: Op) -> bool:
    """Whether the sizes of an op's results depend on values, or may do so for all we know."""
    if base_name(op) == "index":  # only where it is a mask
        return any(program.slots[slot].dtype in ("bool", "uint8") for slot in slots_in(op.args[1:]))
    return not op.name.startswith("aten::") or base_name(op) in SIZED_BY_VALUES


def takes_numbers(op: Op) -> bool:
    """Whether torch.ops makes tensors of numbers for this op."""
    return op.name.startswith("aten::") and base_name(op) in NUMBERS_FOR_TENSORS


def is_literal(slot: Slot) -> bool:
    """Whether a slot is a Python number that torch would make the same tensor of again."""
    number_type = type(slot.number)
    return slot.is_number and slot.role != "made" and _DTYPES_OF_NUMBERS.get(number_type) == slot.dtype


def _keyword(name: str, text: str) -> str:
    return f"**{{{name!r}: {text}}}" if keyword.iskeyword(name) else f"{name}={text}"
