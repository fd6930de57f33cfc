"""Numbers that left the tape for Python and come back to it, as formulas of what they were computed from.

An optimizer reads its step count with `.item()`, computes with it in Python, and gives what comes of it to the next
op. While the code of such an optimizer runs, `.item()` gives a Number: a float that remembers how it was computed.
Where one is an argument of an op, the op gets the formula, and a replay computes the number anew. A comparison of
Numbers is an op of its own on the tape, whose outcome is guarded: what Python decided by it stays what it was, or the
replay stops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchreel._torch.dispatch import find_schema
from torchreel.program.model import Formula, Op, Program, Ref, Value

ITEM = "aten::_local_scalar_dense"


@dataclass(frozen=True)
class Item:
    """A number that an op gave to Python, by the index of its record in the capture."""

    record: int
    escaped: set[int] = field(default_factory=set, compare=False)  # records of those that went where none is followed


Word = float | str | Item


class Number(float):
    """A float, and how it was computed, in postfix order."""

    postfix: tuple[Word, ...]

    def __new__(cls, value: float, postfix: tuple[Word, ...]) -> Number:
        made = super().__new__(cls, value)
        made.postfix = postfix
        return made

    def __add__(self, other: Any) -> Any:
        # a + b is a - (-b), bit for bit.
        return _computed(float.__add__(self, other), self, other, "neg", "sub")

    def __radd__(self, other: Any) -> Any:
        return _computed(float.__radd__(self, other), other, self, "neg", "sub")

    def __sub__(self, other: Any) -> Any:
        return _computed(float.__sub__(self, other), self, other, "sub")

    def __rsub__(self, other: Any) -> Any:
        return _computed(float.__rsub__(self, other), other, self, "sub")

    def __mul__(self, other: Any) -> Any:
        return _computed(float.__mul__(self, other), self, other, "mul")

    def __rmul__(self, other: Any) -> Any:
        return _computed(float.__rmul__(self, other), other, self, "mul")

    def __truediv__(self, other: Any) -> Any:
        return _computed(float.__truediv__(self, other), self, other, "div")

    def __rtruediv__(self, other: Any) -> Any:
        return _computed(float.__rtruediv__(self, other), other, self, "div")

    def __pow__(self, other: Any, modulo: None = None) -> Any:
        return _computed(float.__pow__(self, other), self, other, "pow")

    def __rpow__(self, other: Any, modulo: None = None) -> Any:
        return _computed(float.__rpow__(self, other), other, self, "pow")

    def __neg__(self) -> Number:
        return Number(-float.__float__(self), (*self.postfix, "neg"))

    def __lt__(self, other: Any) -> Any:
        return _compared(torch.lt, self, other)

    def __le__(self, other: Any) -> Any:
        return _compared(torch.le, self, other)

    def __gt__(self, other: Any) -> Any:
        return _compared(torch.gt, self, other)

    def __ge__(self, other: Any) -> Any:
        return _compared(torch.ge, self, other)

    def __eq__(self, other: Any) -> Any:
        return _compared(torch.eq, self, other)

    def __ne__(self, other: Any) -> Any:
        return _compared(torch.ne, self, other)

    def __bool__(self) -> bool:
        return bool(_compared(torch.ne, self, 0.0))

    __hash__ = float.__hash__

    # These return plain numbers, which carry no formula: the number has escaped.
    def __float__(self) -> float:
        return _escaped(self, float.__float__(self))

    def __int__(self) -> int:
        return int(float(self))

    __trunc__ = __int__

    def __abs__(self) -> float:
        return abs(float(self))

    def __round__(self, digits: Any = None) -> Any:
        return round(float(self), digits)

    def __floordiv__(self, other: Any) -> Any:
        return float(self) // other

    def __rfloordiv__(self, other: Any) -> Any:
        return other // float(self)

    def __mod__(self, other: Any) -> Any:
        return float(self) % other

    def __rmod__(self, other: Any) -> Any:
        return other % float(self)


def _escaped(number: Number, value: float) -> float:
    for word in number.postfix:
        if isinstance(word, Item):
            word.escaped.add(word.record)
    return value


def square_root(value: float) -> float:
    """math.sqrt for Numbers. math.sqrt itself would lose the formula."""
    root = math.sqrt(value)
    return Number(root, (*value.postfix, "sqrt")) if isinstance(value, Number) else root


def _computed(value: Any, left: Any, right: Any, *words: str) -> Any:
    if type(value) is not float:  # NotImplemented: the other operand is a tensor, whose method is called next
        return value
    return Number(value, (*_postfix(left), *_postfix(right), *words))


def _postfix(value: Any) -> tuple[Word, ...]:
    return value.postfix if isinstance(value, Number) else (float(value),)


def _compared(compare: Any, left: Number, right: Any) -> Any:
    """By an op, so that a replay compares too."""
    if not isinstance(right, int | float):
        return NotImplemented
    return bool(compare(_tensor_of(left), _tensor_of(right) if isinstance(right, Number) else right).item())


def _tensor_of(number: Number, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.full((), number, dtype=dtype, device="cpu")


@dataclass(frozen=True)
class Given:
    """A Number, or a list with Numbers in it, and which argument of the call it was: a name, or an index."""

    value: Number | tuple[Any, ...]
    argument: str | int


@dataclass(frozen=True)
class Use:
    """A call of torch that was given Numbers, alone or in lists, and the records of the ops that it ran."""

    first: int
    end: int
    given: tuple[Given, ...]


class Following(TorchFunctionMode):  # type: ignore[misc]
    """While it is on, numbers that leave the tape are Numbers, and calls that get them are noted."""

    def __init__(self, capture: Any, uses: list[Use], escaped: set[int]) -> None:
        super().__init__()
        self._capture = capture
        self._uses = uses
        self._escaped = escaped

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is torch.Tensor.item:
            value = function(*args)
            item = Item(self._capture.op_count - 1, self._escaped)
            return Number(value, (item,)) if type(value) is float else value
        given = (*_numbers(enumerate(args)), *_numbers(kwargs.items()))
        if not given:
            return function(*args, **kwargs)
        if function is torch.as_tensor and type(args[0]) is Number:  # no op: it reads the number as Python does
            with self:
                return _tensor_of(args[0], kwargs.get("dtype") or torch.get_default_dtype())
        first = self._capture.op_count
        result = function(*args, **kwargs)
        self._uses.append(Use(first, self._capture.op_count, given))
        return result


def _numbers(arguments: Iterable[tuple[Any, Any]]) -> Iterator[Given]:
    for argument, value in arguments:
        if type(value) is Number:
            yield Given(value, argument)
        elif type(value) in (list, tuple) and any(type(part) is Number for part in value):
            yield Given(tuple(value), argument)


def write(program: Program, records: list[Op | None], uses: list[Use]) -> None:
    """Put the formulas into the ops. `records` are the capture's, as ops of the program.

    A number whose formula is not used anywhere stays what it was, and so must the number that it was computed from.
    """
    indices = {id(op): index for index, op in enumerate(program.ops)}
    free: set[int] = set()
    bound: set[int] = set()
    for use in uses:
        ops = [op for op in records[use.first : use.end] if op is not None]
        for given in use.given:
            items = list(_items(given.value))
            found = [_put(program, op, given, records, indices, len(ops) == 1) for op in ops]
            (free if any(found) else bound).update(item.record for item in items)
            bound.update(item.record for item in items if item.record in item.escaped)
    for item in free - bound:
        op = records[item]
        if op is not None and op.name == ITEM:
            op.guarded = False


def _items(given: Number | tuple[Any, ...]) -> Iterator[Item]:
    for number in given if isinstance(given, tuple) else (given,):
        if isinstance(number, Number):
            yield from (word for word in number.postfix if isinstance(word, Item))


def _put(
    program: Program, op: Op, given: Given, records: list[Op | None], indices: dict[int, int], alone: bool
) -> bool:
    """Whether one of the op's arguments is what was given: then it is the formula from now on.

    Where several have that value, it is the one of its name, or of its position in the only op of the call; or none.
    """
    found = [index for index, value in enumerate(op.args) if _fits(program, value, given.value)]
    if len(found) > 1:
        wanted = given.argument if alone else None
        if isinstance(given.argument, str):
            wanted = next((index for index in found if _argument_name(op, index) == given.argument), None)
        found = [index for index in found if index == wanted]
    if len(found) != 1:
        return False
    if isinstance(given.value, tuple):
        op.args[found[0]] = [_formula(each, records, indices) for each in given.value]
    else:
        op.args[found[0]] = _formula(given.value, records, indices)
    return True


def _fits(program: Program, value: Value, given: Number | tuple[Any, ...]) -> bool:
    """Whether an argument on the tape is this number, or these."""
    if isinstance(given, tuple):
        return isinstance(value, list) and len(value) == len(given) and all(map(_is, value, given))
    return _is(_plain(program, value), given)


def _argument_name(op: Op, index: int) -> str:
    name, _, overload = op.name.partition(".")
    arguments = find_schema(name, overload).arguments
    return arguments[index].name if index < len(arguments) else ""


def _plain(program: Program, value: Value) -> Value:
    """The number that a tensor stands for, where torch made one of a number."""
    if not isinstance(value, Ref):
        return value
    return program.slots[value.slot].number if program.slots[value.slot].is_number else None


def _is(recorded: Any, given: Any) -> bool:
    """Whether it is this number, bit for bit."""
    bits = float.hex(given) if isinstance(given, Number) else float(given).hex()  # float(Number) is an escape
    return isinstance(recorded, int | float) and float(recorded).hex() == bits


def _formula(number: Any, records: list[Op | None], indices: dict[int, int]) -> Any:
    if not isinstance(number, Number):
        return number
    words = (f"item:{indices[id(records[word.record])]}" if isinstance(word, Item) else word for word in number.postfix)
    return Formula(tuple(words), float.__float__(number))
