"""Values that are equal and not the same: identity, order of sets, signs, zones, and what else == does not see."""

from __future__ import annotations

import datetime
import decimal
import fractions
from collections.abc import Callable
from typing import Any

import torch

from tests.graphs.guards.kinds.registry import Box, attribute, enter, kind
from tests.graphs.guards.lockstep import Case, Change, Given, sample

Tensor = torch.Tensor


def _float(number: float) -> float:
    """A new object at each call."""
    return float(repr(number))


def _text(text: str) -> str:
    return "".join(list(text))


def _shown(value: Any) -> float:
    """A number that tells equal values apart by how they are shown."""
    return sum(place * ord(letter) for place, letter in enumerate(repr(value), 1)) % 251


_EQUAL: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "tuple with a zero": (lambda: (0.0,), lambda: (-0.0,)),
    "tuple in a tuple": (lambda: ((1, 2), 3), lambda: ((1, 2.0), 3)),
    "tuple with a bool": (lambda: (1, 0), lambda: (True, False)),
    "frozenset": (lambda: frozenset([0, 8]), lambda: frozenset([8, 0])),
    "frozenset of other types": (lambda: frozenset([1]), lambda: frozenset([True])),
    "range": (lambda: range(0), lambda: range(5, 5)),
    "range with another step": (lambda: range(0, 3, 2), lambda: range(0, 4, 2)),
    "complex number": (lambda: complex(0.0, 0.0), lambda: complex(0.0, -0.0)),
    "decimal number": (lambda: decimal.Decimal("1.0"), lambda: decimal.Decimal("1.00")),
    "fraction": (lambda: fractions.Fraction(1), lambda: 1),
    "time in another zone": (
        lambda: datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC),
        lambda: datetime.datetime(2020, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
    ),
    "size and tuple": (lambda: torch.Size([2]), lambda: (2,)),
    "bytes": (lambda: b"a", lambda: bytearray(b"a")),
    "slice": (lambda: slice(0, 1), lambda: slice(False, True)),
    "dtype's alias": (lambda: torch.float32, lambda: torch.float64),
}


def _state(first: Callable[[], Any], other: Callable[[], Any]) -> Any:
    box = Box(value=first())
    return lambda x: x * _shown(box.value), attribute(box, "value", other())


def _argument(first: Callable[[], Any], other: Callable[[], Any]) -> Case:
    box = Box(value=first())
    given = lambda n: Given(sample(n), box.value)  # noqa: E731
    return Case(lambda x, value: x * _shown(value), [attribute(box, "value", other())], given=given)


for _name, (_first, _other) in _EQUAL.items():
    enter(f"{_name} that is equal, as state", lambda a=_first, b=_other: _state(a, b), brief=True)
    enter(f"{_name} that is equal, as argument", lambda a=_first, b=_other: _argument(a, b), brief=True)


def _identity(make: Callable[[], Any]) -> Any:
    """`is` asks for the object, and an equal one is another."""
    one = make()
    box = Box(a=one, b=one)

    def function(x: Tensor) -> Tensor:
        return x * (2.0 if box.a is box.b else 3.0) * (5.0 if id(box.a) == id(box.b) else 7.0)

    return function, attribute(box, "b", make())


_SAME: dict[str, Callable[[], Any]] = {
    "number": lambda: _float(1000.5),
    "big int": lambda: int("1" * 30),
    "text": lambda: _text("missing"),
    "tuple": lambda: tuple([1, 2]),  # noqa: C409
    "bytes": lambda: bytes([1, 2, 3]),
    "frozenset": lambda: frozenset([1]),
    "range": lambda: range(int("3")),
    "empty list": list,
}
for _name, _make in _SAME.items():
    enter(f"identity of an equal {_name}", lambda make=_make: _identity(make), brief=True)


@kind
def sentinel_that_is_a_tuple() -> Any:
    missing = tuple(["missing"])  # noqa: C409
    table = {"k": missing}

    def function(x: Tensor) -> Tensor:
        return x * (2.0 if table["k"] is missing else 3.0)

    other = tuple(["missing"])  # noqa: C409
    return function, Change(lambda: table.update(k=other), lambda: table.update(k=missing))


@kind
def identity_of_an_argument_that_is_equal() -> Any:
    known, box = _text("known"), Box(same=True)
    other = _text("known")
    given = lambda n: Given(sample(n), known if box.same else other)  # noqa: E731
    return Case(lambda x, name: x * (2.0 if name is known else 3.0), [attribute(box, "same", False)], given=given)


@kind
def identity_of_two_arguments_that_are_equal() -> Any:
    box = Box(same=True)

    def given(number: int) -> Given:
        one = _float(2.5)
        return Given(sample(number), one, one if box.same else _float(2.5))

    return Case(lambda x, a, b: x * (2.0 if a is b else 3.0), [attribute(box, "same", False)], given=given)


@kind
def nan_that_is_found_by_identity() -> Any:
    one, other = float("nan"), float("nan")
    box = Box(k=one)
    known = [one]
    return lambda x: x * (2.0 if box.k in known else 3.0), attribute(box, "k", other)


@kind
def order_of_a_set() -> Any:
    """Equal sets go through their members in the order in which these came, where they collide."""
    held = {0, 8}

    def filled(*numbers: int) -> Callable[[], None]:
        def change() -> None:
            held.clear()
            for number in numbers:
                held.add(number)

        return change

    return lambda x: x * next(iter(held)) + 1, Change(filled(8, 0), filled(0, 8))


@kind
def order_of_a_set_replaced_by_an_equal_one() -> Any:
    box = Box(held={0, 8})
    other = set()
    other.add(8)
    other.add(0)
    return lambda x: x * list(box.held)[0] + 1, attribute(box, "held", other)  # noqa: RUF015


@kind
def order_of_a_set_among_the_arguments() -> Any:
    box = Box(first=0)

    def given(number: int) -> Given:
        held = set()
        held.add(box.first)
        held.add(8 - box.first)
        return Given(sample(number), held)

    return Case(lambda x, held: x * next(iter(held)) + 1, [attribute(box, "first", 8)], given=given)


@kind
def key_of_a_dict_that_is_equal() -> Any:
    table: dict[Any, float] = {1: 2.0}

    def keyed(key: Any) -> Callable[[], None]:
        def change() -> None:
            table.clear()
            table[key] = 2.0

        return change

    return lambda x: x * _shown(next(iter(table))), Change(keyed(True), keyed(1)), Change(keyed(1.0), keyed(1))


@kind
def key_of_an_argument_that_is_equal() -> Any:
    box = Box(key=1)
    given = lambda n: Given({box.key: sample(n)})  # noqa: E731
    return Case(lambda table: table[1] * _shown(next(iter(table))), [attribute(box, "key", True)], given=given)


@kind
def live_view_of_a_dict() -> Any:
    table = {"a": 1.0}
    keys, values, items = table.keys(), table.values(), table.items()

    def function(x: Tensor) -> Tensor:
        return x * len(keys) * sum(values) + len(list(items))

    return function, Change(lambda: table.update(b=2.0), lambda: table.pop("b"))


@kind
def namespace_of_a_class() -> Any:
    class Owner:
        k = 1.0

    view = vars(Owner)
    return lambda x: x * view["k"], attribute(Owner, "k", 5.0)


@kind
def getter_kept_in_state() -> Any:
    import operator

    box, table = Box(k=1.0), {"k": 1.0}
    get, pick, call = operator.attrgetter("k"), operator.itemgetter("k"), operator.methodcaller("get", "k")

    def function(x: Tensor) -> Tensor:
        return x * get(box) * pick(table) + call(table)

    return function, attribute(box, "k", 5.0), Change(lambda: table.update(k=6.0), lambda: table.update(k=1.0))


@kind
def method_of_c_kept_in_state() -> Any:
    table, numbers = {"k": 1.0}, [1.0]
    get, at, count = table.get, numbers.__getitem__, numbers.count
    change = Change(lambda: numbers.__setitem__(0, 5.0), lambda: numbers.__setitem__(0, 1.0))
    return (
        lambda x: x * get("k") * at(0) + count(1.0),
        Change(lambda: table.update(k=6.0), lambda: table.update(k=1.0)),
        change,
    )


@kind
def partial_that_holds_a_list() -> Any:
    import functools

    numbers = [1.0, 2.0]
    total = functools.partial(sum, numbers)
    return lambda x: x * total(), Change(lambda: numbers.append(3.0), numbers.pop)


@kind
def names_of_functions_and_classes() -> Any:
    class Owner:
        """One."""

    def helper() -> None:
        """One."""

    def function(x: Tensor) -> Tensor:
        names = Owner.__name__ + helper.__name__ + str(Owner.__doc__) + str(helper.__doc__) + helper.__qualname__
        return x * sum(map(ord, names))

    return (
        function,
        attribute(Owner, "__name__", "Other"),
        attribute(helper, "__name__", "other"),
        attribute(Owner, "__doc__", "Two."),
        attribute(helper, "__doc__", "Two."),
        attribute(helper, "__qualname__", "other"),
    )


@kind
def annotations_that_are_read() -> Any:
    def helper(by: float = 2.0) -> None:
        pass

    def function(x: Tensor) -> Tensor:
        return x * len(str(helper.__annotations__))

    notes = helper.__annotations__
    return function, Change(lambda: notes.update(more="a"), lambda: notes.pop("more"))


@kind
def enum_that_is_looked_up_by_value() -> Any:
    import enum

    class Mode(enum.Enum):
        A = 1
        B = 2

        @classmethod
        def _missing_(cls, value: object) -> Any:
            return table["default"]

    table = {"default": Mode.A}
    change = Change(lambda: table.update(default=Mode.B), lambda: table.update(default=Mode.A))
    return lambda x: x * Mode(7).value, change


@kind
def flags_that_are_combined() -> Any:
    import enum

    class Option(enum.Flag):
        A = 1
        B = 2

    box = Box(on=Option.A)
    return lambda x: x * (2.0 if Option.B in box.on else 3.0), attribute(box, "on", Option.A | Option.B)
