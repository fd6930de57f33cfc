"""Special methods that do something, and are called by C, by operators and by statements."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

from tests.graphs.guards.kinds.registry import Box, attribute, enter, kind
from tests.graphs.guards.lockstep import Case, Given, sample

Tensor = torch.Tensor


class Counted:
    """Counts every special method that is called on it, and answers with the count."""

    def __init__(self) -> None:
        self.count = 0

    def counted(self) -> int:
        self.count += 1
        return self.count

    def __len__(self) -> int:
        return self.counted()

    def __bool__(self) -> bool:
        return self.counted() % 2 == 0

    def __int__(self) -> int:
        return self.counted()

    __index__ = __round__ = __trunc__ = __abs__ = __neg__ = __invert__ = __hash__ = __int__  # type: ignore[assignment]

    def __float__(self) -> float:
        return float(self.counted())

    def __str__(self) -> str:
        return str(self.counted())

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self.counted())

    def __getitem__(self, key: Any) -> float:
        if self.count % 5 == 4:
            self.count += 1
            raise IndexError(key)
        return float(self.counted())

    def __setitem__(self, key: Any, value: Any) -> None:
        self.counted()

    __delitem__ = __getitem__

    def __contains__(self, value: Any) -> bool:
        return self.counted() % 2 == 0

    def __eq__(self, other: object) -> bool:
        return self.counted() % 2 == 0

    def __lt__(self, other: object) -> bool:
        return self.counted() % 2 == 0

    __gt__ = __le__ = __ge__ = __lt__

    def __add__(self, other: Any) -> float:
        return float(self.counted())

    __radd__ = __mul__ = __rmul__ = __sub__ = __matmul__ = __and__ = __pow__ = __mod__ = __add__

    def __iadd__(self, other: Any) -> Any:
        self.counted()
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("count", "detach"):
            raise AttributeError(name)
        return float(self.counted())

    def __call__(self, *args: Any) -> float:
        return float(self.counted())

    def __enter__(self) -> float:
        return float(self.counted())

    def __exit__(self, *_: object) -> None:
        self.counted()

    def __next__(self) -> float:
        return float(self.counted())

    def __reversed__(self) -> Any:
        return iter([float(self.counted())])


class Ending(Counted):
    """An iterator that ends after two."""

    def __iter__(self) -> Any:
        self.left = 2
        return self

    def __next__(self) -> float:
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return float(self.counted())


def _with(one: Any) -> float:
    with one as k:
        return float(k)


def _added(one: Any) -> float:
    one += 1
    return float(one.__dict__["count"])


def _caught(one: Any) -> float:
    try:
        one[3]
    except IndexError:
        return 7.0
    return 1.0


_CALLS: dict[str, Callable[[Any], Any]] = {
    "len": len,
    "bool": lambda one: 2.0 if one else 3.0,
    "not": lambda one: 2.0 if not one else 3.0,
    "int": int,
    "float": float,
    "index": lambda one: len("abcdefghijklmnopqrstuvwxyz"[one:]),
    "range": lambda one: len(range(one)),
    "round": round,
    "abs": abs,
    "neg": lambda one: -one,
    "hash in a dict": lambda one: {1: 2.0}.get(one, 3.0),
    "hash in a set": lambda one: 2.0 if one in {1, 2, 3} else 3.0,
    "str": lambda one: float(str(one)),
    "repr in a list": lambda one: len(repr([one])),
    "f-string": lambda one: float(f"{one}"),
    "f-string with repr": lambda one: float(f"{one!r}"),
    "str.format": lambda one: float("{}".format(one)),  # noqa: UP032
    "percent": lambda one: float("%s" % one),  # noqa: UP031
    "join": lambda one: float("".join(map(str, [one]))),
    "item": lambda one: one[0],
    "item that is caught": _caught,
    "in": lambda one: 2.0 if 1 in one else 3.0,
    "equality": lambda one: 2.0 if one == 1 else 3.0,
    "equality in a list": lambda one: 2.0 if [one] == [1] else 3.0,
    "member of a list": lambda one: 2.0 if 1 in [one] else 3.0,
    "count in a list": lambda one: 1.0 + [one].count(1),
    "order": lambda one: 2.0 if one < 1 else 3.0,
    "sorted": lambda one: float(sorted([one, one], key=lambda k: k)[0].__dict__["count"]),
    "max": lambda one: float(max([one, one]).__dict__["count"]),
    "sum": lambda one: sum([one]),
    "add": lambda one: one + 1,
    "right multiplication": lambda one: 2 * one,
    "in-place addition": _added,
    "attribute": lambda one: one.anything,
    "getattr": lambda one: getattr(one, "any" + "thing"),
    "hasattr": lambda one: 2.0 if hasattr(one, "anything") else 3.0,
    "call": lambda one: one(),
    "map of it": lambda one: sum(map(one, [1, 2])),
    "sorted by it": lambda one: sorted([1.0, 2.0], key=one)[0],
    "with": _with,
    "next": next,
    "reversed": lambda one: next(reversed(one)),
    "re.sub by it": lambda one: len(re.sub("a", lambda found: str(one), "aa")),
}
_ITERATIONS: dict[str, Callable[[Any], Any]] = {
    "loop": lambda one: sum([k for k in one]),  # noqa: C416
    "list": lambda one: sum(list(one)),
    "sum": sum,
    "unpacking": lambda one: (lambda a, b: a * b)(*one),
    "zip": lambda one: sum(a * b for a, b in zip(one, [1.0, 2.0], strict=False)),
    "dict.fromkeys": lambda one: sum(dict.fromkeys(one)),
    "torch.tensor": lambda one: torch.tensor(list(one)).sum(),
}


def _of(make: Callable[[], Any], call: Callable[[Any], Any]) -> Case:
    one = make()
    return Case(lambda x: x * call(one) + 1, observe=lambda: one.__dict__["count"])


for _name, _call in _CALLS.items():
    enter(f"special method that counts: {_name}", lambda call=_call: _of(Counted, call), brief=True)
for _name, _call in _ITERATIONS.items():
    enter(f"iteration that counts: {_name}", lambda call=_call: _of(Ending, call), brief=True)


def _callback(call: Callable[[Callable[[Any], Any]], Any]) -> Case:
    """A function of Python that C or torch calls, and that notes it."""
    log: list[int] = []

    def noted(value: Any, *_: Any) -> Any:
        log.append(1)
        return value

    def function(x: Tensor) -> Tensor:
        call(noted)
        return x * 2

    return Case(function, observe=lambda: log)


class _Odd:
    def __init__(self, noted: Any) -> None:
        self.noted = noted

    def __deepcopy__(self, memo: Any) -> Any:
        self.noted(1)
        return self

    __copy__ = lambda self: self.noted(1)  # noqa: E731

    def __reduce__(self) -> Any:
        self.noted(1)
        return int, (1,)


_CALLBACKS: dict[str, Callable[[Any], Any]] = {
    "re.sub": lambda noted: re.sub("a", lambda found: noted("b"), "aa"),
    "json.dumps": lambda noted: json.dumps([object()], default=lambda one: noted("a")),
    "copy.deepcopy": lambda noted: copy.deepcopy([_Odd(noted)]),
    "copy.copy": lambda noted: copy.copy(_Odd(noted)),
    "pickle.dumps": lambda noted: pickle.dumps(_Odd(noted)),
    "map": lambda noted: list(map(noted, [1, 2])),
    "map that is never run": lambda noted: map(noted, [1, 2]),
    "sorted": lambda noted: sorted([2, 1], key=noted),
    "min": lambda noted: min([2, 1], key=noted),
    "filter": lambda noted: list(filter(noted, [1, 2])),
    "iter": lambda noted: list(iter(lambda: noted(0), 0)),
    "tree_map": lambda noted: _pytree.tree_map(noted, [1, {"a": 2}]),
    "apply of a module": lambda noted: torch.nn.ReLU().apply(noted),
    "apply_ of a tensor": lambda noted: torch.zeros(2).apply_(noted),
    "property": lambda noted: type("Made", (), {"k": property(lambda self: noted(1))})().k,
    "class body": lambda noted: type("Made", (), {"__init_subclass__": lambda **_: noted(1)}) and None,
    "default of a function": lambda noted: (lambda a=noted(1): a)(),  # noqa: B008
    "generator that is closed": lambda noted: next(noted(k) for k in range(3)),
    "comprehension": lambda noted: [noted(k) for k in range(2)],
    "short circuit": lambda noted: noted(0) or (noted(1) and noted(2)),
    "chained comparison": lambda noted: noted(1) < noted(2) < noted(3),
    "assertion": lambda noted: _assertion(noted),
    "slices": lambda noted: [1, 2, 3][noted(0) : noted(2)],
    "star arguments": lambda noted: print(*[noted("")], end=""),
}


def _assertion(noted: Any) -> None:
    assert noted(1), noted(2)


for _name, _call in _CALLBACKS.items():
    enter(f"callback that notes: {_name}", lambda call=_call: _callback(call), brief=True)


@kind
def class_with_a_torch_function_of_its_own() -> Any:
    class Scaled:
        k = 2.0

        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*(cls.k if isinstance(one, Scaled) else one for one in args), **(kwargs or {}))

    scaled = Scaled()
    return lambda x: torch.mul(x, scaled), attribute(Scaled, "k", 5.0)


@kind
def object_that_becomes_a_tensor() -> Any:
    class Numbers:
        def __init__(self) -> None:
            self.values = [1.0, 2.0, 3.0]

        def __len__(self) -> int:
            return len(self.values)

        def __getitem__(self, place: int) -> float:
            return self.values[place]

    numbers = Numbers()
    return lambda x: x * torch.tensor(numbers), attribute(numbers, "values", [4.0, 5.0, 6.0])


@kind
def object_with_an_array_interface() -> Any:
    import numpy

    class Numbers:
        def __init__(self) -> None:
            self.values = numpy.ones(3)

        @property
        def __array_interface__(self) -> Any:
            return self.values.__array_interface__

    numbers = Numbers()
    return lambda x: x * torch.as_tensor(numpy.asarray(numbers)).float(), attribute(numbers, "values", numpy.zeros(3))


@kind
def context_manager_that_swallows_errors() -> Any:
    class Quiet:
        on = True

        def __enter__(self) -> None:
            pass

        def __exit__(self, kind: Any, *_: object) -> bool:
            return self.on and kind is ValueError

    quiet = Quiet()

    def function(x: Tensor) -> Tensor:
        with quiet:
            raise ValueError("mine")
        return x * 2

    return function, attribute(quiet, "on", False)


@kind
def class_item_that_is_state() -> Any:
    class Table:
        values = {"a": 1.0}  # noqa: RUF012

        def __class_getitem__(cls, name: str) -> float:
            return cls.values[name]

    return lambda x: x * Table["a"], attribute(Table, "values", {"a": 5.0})


@kind
def new_that_gives_the_same_object() -> Any:
    class Single:
        made: Any = None
        k = 1.0

        def __new__(cls) -> Any:
            if cls.made is None:
                cls.made = super().__new__(cls)
            return cls.made

    single = Single()
    return lambda x: x * Single().k, attribute(single, "k", 5.0)


@kind
def object_in_an_argument_that_counts() -> Any:
    one = Counted()
    return Case(lambda x, one: x * float(one), given=lambda n: Given(sample(n), one), observe=lambda: one.__dict__)


@kind
def balanced_write_of_a_number_of_a_tensor() -> Any:
    """What is put for the time of the call is another number at each."""
    box = Box(k=1.0)

    def helper(x: Tensor) -> Tensor:
        return x * box.k

    def function(x: Tensor) -> Tensor:
        before, box.k = box.k, x.sum().item()
        try:
            return helper(x)
        finally:
            box.k = before

    return Case(function, [attribute(box, "k", 5.0)], observe=lambda: box)


@kind
def balanced_write_of_an_argument() -> Any:
    box = Box(now=None)

    def helper() -> Tensor:
        return box.now * 2

    def function(x: Tensor) -> Tensor:
        box.now = x
        try:
            return helper()
        finally:
            box.now = None

    return Case(function, observe=lambda: box)


@kind
def write_that_ends_in_a_constant() -> Any:
    box = Box(on=False)

    def function(x: Tensor) -> Tensor:
        was, box.on = box.on, True
        y = x * (2.0 if was else 3.0)
        box.on = False
        return y

    return Case(function, [attribute(box, "on", True)], observe=lambda: box)


@kind
def balanced_append() -> Any:
    stack: list[Any] = []

    def helper(x: Tensor) -> Tensor:
        return x * len(stack) * stack[-1]

    def function(x: Tensor) -> Tensor:
        stack.append(2.0)
        try:
            return helper(x)
        finally:
            stack.pop()

    return Case(function, [attribute(Box(), "unused", 1)][:0], observe=lambda: stack)


@kind
def balanced_write_with_a_setter_that_counts() -> Any:
    class Owner:
        def __init__(self) -> None:
            self._k, self.sets = 1.0, 0

        @property
        def k(self) -> float:
            return self._k

        @k.setter
        def k(self, value: float) -> None:
            self._k = value
            self.sets += 1

    owner = Owner()

    def function(x: Tensor) -> Tensor:
        before, owner.k = owner.k, 2.0
        y = x * owner.k
        owner.k = before
        return y

    return Case(function, observe=lambda: owner)
