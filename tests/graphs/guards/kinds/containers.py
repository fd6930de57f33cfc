"""What Python reads: containers, their order, length and items, and values that are equal and not the same."""

from __future__ import annotations

import array
import collections
import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy
import torch

from tests.graphs.guards.kinds.registry import Box, attribute, enter, grown, item, kind
from tests.graphs.guards.lockstep import Case, Change, Given, sample

Tensor = torch.Tensor


def _folded(numbers: Any) -> float:
    """Depends on the order."""
    total = 0.0
    for number in numbers:
        total = total * 2 + float(number)
    return total


# What holds two numbers, and what becomes of it.
_HOLDERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Change]]] = {
    "list": (lambda: [1.0, 2.0], lambda held: grown(held, 3.0)),
    "list reversed": (lambda: [1.0, 2.0], lambda held: Change(held.reverse, held.reverse)),
    "deque": (lambda: collections.deque([1.0, 2.0]), lambda held: item(held, 0, 5.0)),
    "deque turned": (lambda: collections.deque([1.0, 2.0, 4.0]), lambda held: Change(held.rotate, held.reverse)),
    "numpy": (lambda: numpy.array([1.0, 2.0]), lambda held: item(held, 0, 5.0)),
    "numpy sorted in place": (lambda: numpy.array([2.0, 1.0]), lambda held: Change(held.sort)),
    "array": (lambda: array.array("d", [1.0, 2.0]), lambda held: item(held, 0, 5.0)),
    "array grown": (lambda: array.array("d", [1.0, 2.0]), lambda held: grown(held, 5.0)),
    "bytearray": (lambda: bytearray(b"\1\2"), lambda held: item(held, 1, 9)),
    "memoryview": (lambda: memoryview(bytearray(b"\1\2")), lambda held: item(held, 1, 9)),
    "keys of a dict": (lambda: {1.0: 0, 2.0: 0}, lambda held: item(held, 3.0, 0)),
    "user list": (lambda: collections.UserList([1.0, 2.0]), lambda held: grown(held, 3.0)),
    "set": (lambda: {1.0}, lambda held: Change(lambda: held.add(8.0), lambda: held.discard(8.0))),
    "keys of a counter": (lambda: collections.Counter([1, 1, 2]), lambda held: item(held, 7, 1)),
    "tensor": (lambda: torch.tensor([1.0, 2.0]), lambda held: item(held, 0, torch.tensor(5.0))),
}  # fmt: skip


def _of_a_holder(make: Callable[[], Any], change: Callable[[Any], Change]) -> Any:
    held = make()
    return lambda x: x * _folded(held), change(held)


def _of_its_parts(make: Callable[[], Any], change: Callable[[Any], Change]) -> Any:
    """Reached through an object, and asked for its length and its last item."""
    held = make()
    box = Box(held=held)

    def function(x: Tensor) -> Tensor:
        return x * len(box.held) + float(list(box.held)[-1]) + sum(float(one) for one in iter(box.held) if one)

    return function, change(held)


for _name, (_make, _change) in _HOLDERS.items():
    enter(f"items of {_name}", lambda make=_make, change=_change: _of_a_holder(make, change))
    enter(f"parts of {_name}", lambda make=_make, change=_change: _of_its_parts(make, change))


@kind
def mapping_proxy() -> Any:
    table = {"k": 1.0}
    view = types.MappingProxyType(table)
    return lambda x: x * view["k"] * len(view), item(table, "k", 5.0), item(table, "other", 1.0)


@kind
def chain_of_maps() -> Any:
    first: dict[str, float] = {}
    second = {"k": 1.0}
    chain = collections.ChainMap(first, second)
    return lambda x: x * chain["k"], item(second, "k", 5.0), item(first, "k", 6.0)


@kind
def chain_of_maps_that_grows() -> Any:
    chain = collections.ChainMap({"k": 1.0})
    return lambda x: x * chain["k"], Change(lambda: chain.maps.insert(0, {"k": 5.0}), lambda: chain.maps.pop(0))


@kind
def user_dict() -> Any:
    table = collections.UserDict(k=1.0)
    return lambda x: x * table["k"], item(table, "k", 5.0), attribute(table, "data", {"k": 6.0})


@kind
def default_dict_read() -> Any:
    table = collections.defaultdict(lambda: 2.0, k=1.0)
    changes = [item(table, "k", 5.0), attribute(table, "default_factory", lambda: 9.0)]
    return Case(lambda x: x * table["k"] * table.get("none", 1.0), [changes[0]], observe=lambda: table)


@kind
def default_dict_that_a_read_fills() -> Any:
    table: Any = collections.defaultdict(list)
    change = Change(lambda: table["a"].append(1.0), lambda: table.clear())
    return Case(lambda x: x * (1 + len(table["a"])), [change], observe=lambda: table)


@kind
def missing_key_of_a_dict_class() -> Any:
    rest = {"k": 1.0}

    class Table(dict):
        def __missing__(self, key: str) -> float:
            return rest[key]

    table = Table()
    return lambda x: x * table["k"], item(rest, "k", 5.0), item(table, "k", 6.0)


@kind
def ordered_dict_whose_order_changes() -> Any:
    table = collections.OrderedDict(a=1.0, b=2.0)
    change = Change(lambda: table.move_to_end("a"), lambda: table.move_to_end("b"))
    return lambda x: x * _folded(table.values()), change


@kind
def dict_whose_order_changes() -> Any:
    table = {"a": 1.0, "b": 2.0}

    def last(name: str) -> None:
        table[name] = table.pop(name)

    change = Change(lambda: last("a"), lambda: last("b"))
    return lambda x: {name: x * value for name, value in table.items()}, change


@kind
def dict_argument_whose_order_changes() -> Any:
    flip = Box(on=False)

    def given(number: int) -> Given:
        x = sample(number)
        return Given({"b": x, "a": x + 1} if flip.on else {"a": x + 1, "b": x})

    def function(table: dict[str, Tensor]) -> Any:
        total = torch.zeros(3)
        for value in table.values():
            total = total * 2 + value
        return total, list(table), table

    return Case(function, [attribute(flip, "on", True)], given=given)


@kind
def keyword_arguments_whose_order_changes() -> Any:
    flip = Box(on=False)

    def given(number: int) -> Given:
        x = sample(number)
        return Given(**({"b": x, "a": x + 1} if flip.on else {"a": x + 1, "b": x}))

    def function(**parts: Tensor) -> Any:
        return torch.stack([value * place for place, value in enumerate(parts.values())]), parts

    return Case(function, [attribute(flip, "on", True)], given=given)


@kind
def named_tuple_with_a_list() -> Any:
    pair = collections.namedtuple("pair", "items k")([1.0], 2.0)
    holder = Box(pair=pair)
    changes = item(pair.items, 0, 5.0), attribute(holder, "pair", pair._replace(k=3.0))
    return lambda x: x * holder.pair.items[0] * holder.pair.k, *changes


@kind
def list_within_a_tuple_within_a_frozenset_of_keys() -> Any:
    inner = [1.0]
    table = {frozenset({"a"}): (inner, "a")}
    return lambda x: x * table[frozenset("a")][0][0], item(inner, 0, 5.0)


@kind
def long_list() -> Any:
    numbers = [1.0] * 5000
    return lambda x: x * numbers[4321], item(numbers, 4321, 5.0)


@kind
def deep_nesting() -> Any:
    deep: Any = {"k": 1.0}
    tree = deep
    for _ in range(12):
        tree = [{"in": tree}]

    def function(x: Tensor) -> Tensor:
        place = tree
        for _ in range(12):
            place = place[0]["in"]
        return x * place["k"]

    return function, item(deep, "k", 5.0)


@kind
def list_that_holds_itself() -> Any:
    ring: list[Any] = [1.0]
    ring.append(ring)
    return lambda x: x * ring[1][1][0], item(ring, 0, 5.0)


@kind
def slice_of_a_list() -> Any:
    numbers = [1.0, 2.0, 3.0]
    bounds = Box(start=0)
    return lambda x: x * sum(numbers[bounds.start :]), item(numbers, 2, 5.0), attribute(bounds, "start", 1)


@kind
def truth_of_a_container() -> Any:
    waiting: list[int] = []
    return lambda x: x * (2.0 if waiting else 1.0) * (3.0 if not waiting else 4.0), grown(waiting, 0)


@kind
def key_in_a_dict() -> Any:
    table = {"k": 1.0}
    return lambda x: x * (2.0 if "other" in table else 1.0) * table.get("other", 3.0), item(table, "other", 5.0)


@kind
def none_is_not_absent() -> Any:
    table: dict[str, Any] = {}
    change = item(table, "k", None)
    return lambda x: x * (2.0 if "k" in table else 1.0) * (3.0 if table.get("k") is None else 4.0), change


_EQUAL: dict[str, tuple[Any, Any]] = {
    "an int and a bool": (1, True),
    "an int and a float": (1, 1.0),
    "zeros of two signs": (0.0, -0.0),
    "a float and a complex number": (1.0, 1 + 0j),
    "a float and one of numpy": (1.0, numpy.float32(1.0)),
    "a nan and a number": (1.0, float("nan")),
    "two huge ints": (2**70, 2**70 + 1),
    "a str and one of a class": ("a", type("Str", (str,), {})("a")),
    "a tuple and a named tuple": ((1, 2), collections.namedtuple("two", "a b")(1, 2)),
    "two tuples of equal numbers": ((1, 2), (1.0, True)),
    "a list and a tuple": ([1], (1,)),
    "an int and one of a class": (1, type("Int", (int,), {"k": 5})(1)),
}


def _seen(value: Any) -> float:
    """A number that tells these apart."""
    name = type(value).__name__
    return (sum(map(ord, name)) + sum(map(ord, repr(value)))) % 97 + len(name)


def _equal_state(first: Any, other: Any) -> Any:
    box = Box(k=first)
    return lambda x: (x * _seen(box.k), box.k), attribute(box, "k", other)


def _equal_argument(first: Any, other: Any) -> Any:
    box = Box(k=first)
    given = lambda number: Given(sample(number), k=box.k)  # noqa: E731
    return Case(lambda x, k: (x * _seen(k), k), [attribute(box, "k", other)], given=given)


def _equal_key(first: Any, other: Any) -> Any:
    table = {first: 1.0}

    def keyed(key: Any) -> Callable[[], None]:
        return lambda: (table.clear(), table.__setitem__(key, 1.0))[1]

    return lambda x: x * sum(_seen(key) for key in table), Change(keyed(other), keyed(first))


for _name, (_first, _other) in _EQUAL.items():
    enter(f"state that is one of {_name}", lambda a=_first, b=_other: _equal_state(a, b))
    enter(f"argument that is one of {_name}", lambda a=_first, b=_other: _equal_argument(a, b))
for _name in ("an int and a bool", "zeros of two signs", "an int and a float"):
    enter(f"key that is one of {_name}", lambda pair=_EQUAL[_name]: _equal_key(*pair))


@kind
def iterator_kept_between_calls() -> Any:
    numbers = iter([float(k) for k in range(100)])
    return lambda x: x * next(numbers)


@kind
def generator_kept_between_calls() -> Any:
    def made() -> Any:
        k = 0.0
        while True:
            k += 1
            yield k

    numbers = made()
    return lambda x: x * next(numbers)


@kind
def generator_that_is_sent_to() -> Any:
    def mean() -> Any:
        total, count, got = 0.0, 0, 0.0
        while True:
            total, count = total + got, count + 1
            got = yield total / count

    running = mean()
    next(running)
    return lambda x: x * running.send(2.0)


@kind
def counter_of_itertools() -> Any:
    count = itertools.count(1)
    return lambda x: x * next(count)


@kind
def cycle_of_itertools() -> Any:
    turns = itertools.cycle([1.0, 2.0, 3.0])
    return lambda x: x * next(turns)


@kind
def iterator_among_the_arguments() -> Any:
    numbers = iter([float(k) for k in range(100)])
    return Case(lambda x, numbers: x * next(numbers), given=lambda n: Given(sample(n), numbers))


@kind
def map_kept_between_calls() -> Any:
    doubled = map(operator.neg, range(100))
    return lambda x: x * next(doubled)


@kind
def call_until_a_sentinel() -> Any:
    numbers = [1.0, 2.0, 0.0, 4.0, 0.0] * 20

    def take() -> float:
        return numbers.pop(0)

    return Case(lambda x: x * sum(iter(take, 0.0)), observe=lambda: numbers)
