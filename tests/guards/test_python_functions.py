"""Each C function of Python that is known: in lockstep with eager, while everything that it reads is changed."""

# ruff: noqa: B010, B024, C417, E501, E731, RUF015, RUF017, SIM905  (how a function is called is the point)

from __future__ import annotations

import abc
import collections
import contextlib
import contextvars
import functools
import itertools
import operator
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.guards.lockstep import PATTERNS, SHORT, Maker, World, check
from tests.sample import sampled
from torchreel.guards import python_functions as known
from torchreel.guards.python_functions.methods import _of_plain
from torchreel.guards.python_functions.table import _kept


class Box:
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


class Number:
    """Answers what numbers answer, out of state that can be changed."""

    def __init__(self) -> None:
        self.held = 2

    def _answer(self, *others: Any) -> int:
        return self.held

    for _name in """index int float abs neg pos invert round trunc floor ceil complex add radd sub rsub mul rmul truediv
        rtruediv floordiv mod divmod pow lshift rshift and or xor rpow""".split():
        vars()[f"__{_name}__"] = _answer
    __float__ = lambda self: float(self.held)
    __complex__ = lambda self: complex(self.held)
    __lt__ = lambda self, other: self.held < 3
    __gt__ = __le__ = __ge__ = __eq__ = __ne__ = __lt__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]
    __bool__ = lambda self: self.held < 3


def of_values(function: Callable[..., Any], before: tuple[Any, ...], after: tuple[Any, ...]) -> Maker:
    """function(*values), with other values from the change on."""

    def make() -> World:
        values = list(before)

        def change(new: tuple[Any, ...]) -> None:
            values[:] = new

        return World(
            lambda x: (x * 2, _shown(function(*values))), lambda: change(after), lambda: change(before), lambda: values
        )

    return make


def of_object(function: Callable[..., Any], count: int = 1) -> Maker:
    """function(number, ...), where the number is an object that answers otherwise from the change on."""

    def make() -> World:
        number = Number()
        values = [number, 1, 1][:count]
        change = functools.partial(setattr, number, "held")
        return World(lambda x: (x * 2, _shown(function(*values))), lambda: change(5), lambda: change(2))

    return make


def of_state(
    program: Callable[[Any, torch.Tensor], Any],
    state: Callable[[], Any],
    change: Callable[[Any], Any],
    back: Callable[[Any], Any],
) -> Maker:
    """program(held, x), where what is held is changed in place."""

    def make() -> World:
        held = state()
        return World(lambda x: program(held, x), lambda: change(held), lambda: back(held), lambda: held)

    return make


def _shown(value: Any) -> Any:
    """Iterators as what they give, as no graph returns an iterator."""
    return list(value) if hasattr(type(value), "__next__") else value


def name_of(function: Any) -> str:
    owner = getattr(function, "__objclass__", None)
    module = owner.__module__ if owner is not None else function.__module__
    return f"{module}.{function.__qualname__}".removeprefix("builtins.")


def functions_of(table: dict[int, Any]) -> dict[str, Any]:
    found = {id(one): one for one in _kept}
    return {name_of(found[number]): found[number] for number in table}


FUNCTIONS, METHODS = functions_of(known.FUNCTIONS), functions_of(known.METHODS)

PAIRS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "all": (([[1], [2]],), ([[1], []],)),
    "any": (([[], []],), ([[1], []],)),
    "bin": ((5,), (6,)),
    "chr": ((65,), (66,)),
    "hex": ((65,), (66,)),
    "oct": ((65,), (66,)),
    "ord": (("a",), ("b",)),
    "divmod": ((7, 2), (7, 3)),
    "max": (([1, 2],), ([1, 3],)),
    "min": (([1, 2],), ([0, 3],)),
    "sorted": (([[2], [1]],), ([[2], [3]],)),
    "sum": (([[1], [2]], []), ([[1], [3]], [])),
    "pow": ((2, 3), (2, 5, 7)),
    "round": ((2.567, 1), (2.567, 2)),
    "_functools.reduce": ((operator.add, [1, 2]), (operator.add, [1, 2, 3])),
    **{
        f"_operator.{name}": ((6, 2), (7, 1))
        for name in "add sub mul truediv floordiv mod pow eq ne lt le gt ge and_ or_ xor lshift rshift is_ is_not".split()
    },
    **{f"_operator.{name}": ((2,), (0,)) for name in "neg pos not_ truth index".split()},
    "_operator.getitem": (([1, 2], 0), ([3, 2], 0)),
    "_operator.contains": (([1, [2]], [2]), ([1, [3]], [2])),
    "math.dist": (([1.0], [2.0]), ([1.0], [3.0])),
    "math.fsum": (([1.0, 2.0],), ([1.0, 3.0],)),
    "math.prod": (([1.0, 2.0],), ([1.0, 3.0],)),
    **{f"math.{name}": ((4, 2), (6, 3)) for name in "gcd lcm perm comb ldexp".split()},
    **{f"math.{name}": ((4,), (9,)) for name in "factorial isqrt".split()},
    **{
        f"math.{name}": ((4.0, 2.0), (6.5, 3.0))
        for name in "atan2 copysign fmod hypot isclose nextafter pow remainder".split()
    },
    "math.acosh": ((1.5,), (2.5,)),
    "cmath.isclose": ((1j, 1j), (1j, 2j)),
    "cmath.rect": ((1.0, 0.5), (1.0, 0.25)),
    "ascii": (("a",), ("b",)),
    "repr": (("a",), ((1, 2.5),)),
    "format": ((2.5, ".1f"), (2.5, ".3f")),
    "sys.intern": (("a",), ("b",)),
    "sys.is_finalizing": ((), ()),
    "sys.getrecursionlimit": ((), ()),
    "callable": ((len,), (3,)),
    "len": (([1],), ([1, 2],)),
    "isinstance": ((1, int), ("a", (int, (float,)))),
    "issubclass": ((bool, int), (bool, str | float)),
    "hash": (((1, 2),), ((1, 3),)),
    "iter": (([1, 2],), ([1, 3],)),
}


def _default_pair(name: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return ((0.5 + 1j,), (0.25 + 2j,)) if name.startswith("cmath.") else ((0.5,), (0.25,))


class Order:
    """Sorts by what it holds."""

    def __init__(self, *held: Any) -> None:
        self.held = list(held)

    def __lt__(self, other: Order) -> bool:
        return self.held < other.held

    def __iter__(self) -> Any:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


def _grow(held: Any) -> None:
    held[0].held.append(9)


def _shrink(held: Any) -> None:
    held[0].held.pop()


def of_orders(program: Callable[[Any], Any]) -> Maker:
    """program(orders): the first of two objects with lists grows."""
    return of_state(lambda held, x: x * program(held), lambda: [Order(3), Order(3, 1)], _grow, _shrink)


class _Hidden(DeprecationWarning):
    """Ignored, but for what the tests change."""


def _filtered(action: Any) -> Maker:
    def make() -> World:
        filters: list[Any] = []
        shown: list[Any] = []

        def call(x: torch.Tensor) -> torch.Tensor:
            warnings.warn("a warning", _Hidden, stacklevel=1)
            return x * 2

        def change() -> None:
            filters.append(warnings.catch_warnings(record=True))
            shown.append(filters[-1].__enter__())
            warnings.simplefilter(action)

        return World(
            call, change, lambda: filters.pop().__exit__(None, None, None), lambda: [len(one) for one in shown]
        )

    return make


class Base(abc.ABC):
    pass


def _registered(ask: Callable[[Any, Any], bool]) -> Maker:
    def make() -> World:
        other = type("Other", (), {})
        kind = type("Kind", (Base,), {})
        return World(lambda x: x * (2 if ask(other, kind) else 3), lambda: kind.register(other))

    return make


def _attribute(program: Callable[[Any, torch.Tensor], Any]) -> Maker:
    return of_state(program, lambda: Box(k=2), lambda held: setattr(held, "k", 5), lambda held: setattr(held, "k", 2))


def _deleted(held: Any, x: torch.Tensor) -> torch.Tensor:
    fresh = Box(k=held.k, z=1)
    delattr(fresh, "z")
    return x * fresh.k * (2 if hasattr(fresh, "z") else 3)


def _set(held: Any, x: torch.Tensor) -> torch.Tensor:
    held.__class__.seen = x.dim()
    setattr(held, "last", held.k)
    return x * held.last


MORE: dict[str, list[Maker]] = {
    "all": [
        of_orders(lambda held: 2 if all(one.held[1:] for one in held) else 3),
        of_orders(lambda held: 2 if all(map(lambda one: one.held[1:], held)) else 3),
        of_orders(lambda held: 2 if all(iter([held[0].held, held[1].held])) else 3),
    ],
    "any": [
        of_state(
            lambda held, x: x * (2 if any(held) else 3),
            lambda: itertools.repeat([], 2).__reduce__()[1][:1],
            lambda held: held[0].append(1),
            lambda held: held[0].clear(),
        ),
        of_orders(lambda held: 2 if any(one.held[1:] for one in held[:1]) else 3),
    ],
    "sorted": [
        of_orders(lambda held: sorted(held)[0].held[0]),
        of_orders(lambda held: sorted(held, key=lambda one: one.held, reverse=True)[0].held[-1]),
        of_orders(lambda held: sorted(held, key=len)[0].held[-1]),
        of_orders(lambda held: len(sorted(held, key=operator.attrgetter("held"))[0].held)),
        of_orders(lambda held: len(sorted([0, 1], key={0: held[0].held, 1: [3, 5]}.get)) + len(held[0].held)),
        of_orders(lambda held: sorted(held, key=functools.partial(lambda a, one: one.held, 1))[0].held[-1]),
    ],
    "max": [
        of_orders(lambda held: max(held, key=lambda one: (one.held, 1)).held[-1]),
        of_orders(lambda held: max(iter(held), key=lambda one: one.held).held[-1]),
        of_orders(lambda held: max((one.held for one in held), default=[])[-1]),
        of_orders(lambda held: max(*held).held[-1]),
    ],
    "min": [
        of_orders(lambda held: min(held, key=lambda one: one.held).held[-1]),
        of_orders(lambda held: min(one.held for one in held)[-1]),
    ],
    "sum": [
        of_orders(lambda held: len(sum((one.held for one in held), []))),
        of_orders(lambda held: len(sum(map(lambda one: one.held, held), []))),
        of_orders(lambda held: sum(len(one) for one in held)),
        of_orders(lambda held: sum(sum(one) for one in held)),
        of_orders(lambda held: len(sum(itertools.chain([held[0].held]), start=[1]))),
    ],
    "_functools.reduce": [
        of_orders(lambda held: len(functools.reduce(operator.add, (one.held for one in held)))),
        of_orders(lambda held: len(functools.reduce(lambda a, one: a + one.held, held, []))),
    ],
    "len": [of_orders(lambda held: len(held[0])), of_orders(lambda held: len(held[0].held))],
    "iter": [of_orders(lambda held: next(iter(reversed(list(iter(held[0])))))), of_orders(lambda held: len([*held[0]]))],
    "next": [of_orders(lambda held: next((one for one in held[0] if one > 5), 4))],
    "getattr": [_attribute(lambda held, x: x * getattr(held, "k", 1) * getattr(held, "z", 1))],
    "hasattr": [
        of_state(
            lambda held, x: x * (2 if hasattr(held, "k") else 3),
            Box,
            lambda held: setattr(held, "k", 1),
            lambda held: delattr(held, "k"),
        )
    ],
    "setattr": [_attribute(_set)],
    "delattr": [_attribute(_deleted)],
    "callable": [
        of_state(
            lambda held, x: x * (2 if callable(held[0]) else 3),
            lambda: [Box()],
            lambda held: setattr(held[0], "__class__", type("Called", (Box,), {"__call__": lambda self: 1})),
            lambda held: setattr(held[0], "__class__", Box),
        )
    ],
    "_abc._abc_instancecheck": [_registered(lambda other, kind: isinstance(other(), kind))],
    "_abc._abc_subclasscheck": [_registered(issubclass)],
    "id": [of_state(lambda held, x: x * (2 if id(held[0]) == id(held[1]) else 3), lambda: [[], []],
                    lambda held: held.__setitem__(0, held[1]), lambda held: held.__setitem__(0, []))],
    "_warnings.warn": [_filtered("always"), _filtered("ignore"), _filtered("error")],
    "_contextvars.copy_context": [of_values(lambda: len(contextvars.copy_context()) >= 0, (), ())],
}  # fmt: skip

_OBJECTS = {"abs": 1, "round": 1, "divmod": 2, "pow": 2, "bin": 1, "hex": 1, "oct": 1, "chr": 1}


def cases_of_function(name: str) -> list[Maker]:
    function = FUNCTIONS[name]
    cases = list(MORE.get(name, []))
    if name in PAIRS or name.startswith(("math.", "cmath.")) or name == "abs":
        cases.append(of_values(function, *PAIRS.get(name, _default_pair(name))))
    if name in _OBJECTS or name.startswith(("math.", "cmath.", "_operator.")):
        cases.append(of_object(function, _OBJECTS.get(name, len(PAIRS.get(name, ((0,),))[0]))))
    return cases


@pytest.mark.parametrize("name", sampled(FUNCTIONS, 2))
def test_function(name: str) -> None:
    cases = cases_of_function(name)
    assert cases, f"{name} is known, and has no case here."
    for case in cases:
        check(case, PATTERNS if name in MORE else ("ccc!c",))


# Methods


def _plain_arguments(value: Any) -> list[tuple[Any, ...]]:
    return [(), (value,), (1,), ("a",), ("a", "b"), (1, 1), (8, "big"), (b"a",), (b"a", b"b"), ("", "", "")]


PLAIN_VALUES: dict[type, tuple[Any, Any]] = {
    str: ("a b", "b cc"), bytes: (b"61", b"6263"), int: (6, 7), float: (2.5, 3.0), complex: (1j, 2 + 1j), bool: (True, False),
    range: (range(3), range(5)), slice: (slice(1), slice(2)), type(None): (None, None),
    torch.dtype: (torch.float32, torch.float64), torch.device: (torch.device("cpu"), torch.device("meta")),
    types.GenericAlias: (list[int], list[str]), torch.Size: (torch.Size([1, 2]), torch.Size([1, 3])),
}  # fmt: skip


def _works(method: Any, values: tuple[Any, ...]) -> bool:
    with contextlib.suppress(Exception):
        method(*values)
        return True
    return False


def case_of_plain(method: Any) -> Maker | None:
    """A method of a value that cannot change: with other values, and with arguments that it takes."""
    for kind, (before, after) in PLAIN_VALUES.items():
        if method.__objclass__ is kind:
            first = kind if isinstance(method, types.ClassMethodDescriptorType) else before
            for more in _plain_arguments(before):
                if _works(method, (first, *more)):
                    return of_values(functools.partial(_bound, method.__name__), (before, *more), (after, *more))
            return of_values(functools.partial(_bound, method.__name__), (before,), (after,))
    return None


def _bound(name: str, value: Any, *more: Any) -> Any:
    result = getattr(value, name)(*more)
    return result if type(result) in (str, int, float, bool, bytes, complex, tuple, list) else str(type(result))


def _change_nested(held: Any) -> None:
    """A container, and the list in the container in it."""
    inner = held[1] if isinstance(held, list) else held["b"]
    inner.append(7)


def _change_nested_back(held: Any) -> None:
    (held[1] if isinstance(held, list) else held["b"]).pop()


def of_list(program: Callable[[list[Any]], Any]) -> list[Maker]:
    return [
        of_state(lambda held, x: (x * 2, program(held)), lambda: [1, [2]], _change_nested, _change_nested_back),
        of_state(lambda held, x: (x * 2, program(held)), lambda: [1, [2]], lambda held: held.append(3),
                 lambda held: held.pop()),
    ]  # fmt: skip


def of_dict(program: Callable[[Any], Any], kind: type = dict) -> list[Maker]:
    return [
        of_state(lambda held, x: (x * 2, program(held)), lambda: kind(a=1, b=[2]), _change_nested, _change_nested_back),
        of_state(lambda held, x: (x * 2, program(held)), lambda: kind(a=1, b=[2]), lambda held: held.update(c=3),
                 lambda held: held.pop("c")),
    ]  # fmt: skip


def of_set(program: Callable[[Any], Any]) -> list[Maker]:
    return [
        of_state(lambda held, x: (x * 2, program(held)), lambda: {1, 2}, lambda held: held.add(3),
                 lambda held: held.discard(3)),
    ]  # fmt: skip


def of_frozen(program: Callable[[Any], Any]) -> list[Maker]:
    def change(held: list[Any], new: Any) -> None:
        held[0] = None  # so that the next one may lie at its address
        held[0] = frozenset(new)

    return [
        of_state(lambda held, x: (x * 2, program(held[0])), lambda: [frozenset((1, 2))],
                 lambda held: change(held, (1, 3)), lambda held: change(held, (1, 2))),
    ]  # fmt: skip


def of_fresh(program: Callable[[Any], Any]) -> list[Maker]:
    """program(held) fills what the call makes out of a list of lists."""
    return [
        of_state(lambda held, x: (x * 2, program(held)), lambda: [["a", 1], ["b", 2]],
                 lambda held: held[0].__setitem__(1, 5), lambda held: held[0].__setitem__(1, 1)),
        of_state(lambda held, x: (x * 2, program(held)), lambda: [["a", 1], ["b", 2]],
                 lambda held: held.append(["c", 3]), lambda held: held.pop()),
    ]  # fmt: skip


def after(change: Callable[[Any], Any], container: Any) -> Any:
    change(container)
    return container


def _with_item(held: Any, kind: type) -> Any:
    return kind([("a", held[0][1]), ("b", 2)])


class Dot(types.SimpleNamespace):
    pass


def _generator(held: Any) -> Any:
    got = yield held[0][1]
    yield got


def _thrown(held: Any) -> Any:
    def catches() -> Any:
        try:
            yield 1
        except ValueError:
            yield held[0][1]

    made = catches()
    next(made)
    return made.throw(ValueError())


def _sent(held: Any) -> Any:
    made = _generator(held)
    return next(iter(made)) + made.send(held[0][1])


def _closed(held: Any) -> Any:
    made = _generator(held)
    value = made.__next__()
    made.close()
    return value


def _noted(held: Any) -> Any:
    error = ValueError(held[0][1])
    BaseException.__init__(error, held[0][1])
    error.add_note("a note")
    return error.with_traceback(None).args[0]


def _on_outer(change: Callable[[Any], Any], state: Callable[[], Any]) -> Maker:
    """A method that changes what was made before the call."""

    def program(held: Any, x: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(Exception):
            change(held)
        return x * 2

    return of_state(program, state, lambda held: None, lambda held: None)


class Own:
    """Calls the methods of object itself."""

    def __init__(self) -> None:
        super().__init__()
        self.k = 2

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)

    def __ne__(self, other: object) -> bool:
        return super().__ne__(other)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) is True

    def __hash__(self) -> int:
        return super().__hash__()

    def __str__(self) -> str:
        return str(self.k)

    __repr__ = __str__


def of_own(program: Callable[[Any, torch.Tensor], Any]) -> list[Maker]:
    change = functools.partial(lambda value, held: setattr(held, "k", value))
    return [of_state(program, Own, functools.partial(change, 5), functools.partial(change, 2))]


class Meta(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return super().__instancecheck__(value)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return super().__subclasscheck__(kind)


def _of_class(program: Callable[[Any, Any, torch.Tensor], Any]) -> list[Maker]:
    def make() -> World:
        one, other = Meta("One", (Box,), {"k": 2}), Meta("Other", (Box,), {"k": 2})
        value = one(z=1)
        return World(
            lambda x: program(value, one, x), lambda: setattr(value, "__class__", other),
            lambda: setattr(value, "__class__", one),
        )  # fmt: skip

    return [make]


def _variable(program: Callable[[Any, torch.Tensor], Any]) -> list[Maker]:
    def make() -> World:
        variable = contextvars.ContextVar("variable", default=2)
        return World(lambda x: program(variable, x), lambda: variable.set(5), lambda: variable.set(2), variable.get)

    return [make]


def _set_and_reset(variable: Any, x: torch.Tensor) -> torch.Tensor:
    token = variable.set(3)
    x = x * variable.get()
    variable.reset(token)
    return x * variable.get()


def _fresh_dict(held: Any, kind: type = dict) -> Any:
    return _with_item(held, kind)


OrderedDict, deque = collections.OrderedDict, collections.deque
READS_LIST = {
    "copy": lambda v: v.copy(), "index": lambda v: v.index([2]), "count": lambda v: v.count([2]),
    "__contains__": lambda v: v.__contains__([2]), "__eq__": lambda v: v.__eq__([1, [2]]),
    "__ne__": lambda v: v.__ne__([1, [2]]), "__mul__": lambda v: v.__mul__(2), "__add__": lambda v: v.__add__([1]),
    "__rmul__": lambda v: v.__rmul__(2), "__len__": lambda v: v.__len__(), "__iter__": lambda v: [*v.__iter__()],
    "__reversed__": lambda v: [*v.__reversed__()], "__getitem__": lambda v: v.__getitem__(-1),
}  # fmt: skip
READS_DICT = {
    "keys": lambda v: [*v.keys()], "values": lambda v: [*v.values()], "items": lambda v: [*v.items()],
    "copy": lambda v: v.copy(), "__or__": lambda v: v.__or__({"z": 1}), "__eq__": lambda v: v.__eq__({"a": 1, "b": [2]}),
    "__ne__": lambda v: v.__ne__({"a": 1, "b": [2]}), "__len__": lambda v: v.__len__(),
    "__iter__": lambda v: [*v.__iter__()], "__reversed__": lambda v: [*v.__reversed__()], "get": lambda v: v.get("c", 4),
    "__getitem__": lambda v: v.__getitem__("b")[-1], "__contains__": lambda v: v.__contains__("c"),
}  # fmt: skip
READS_SET = {
    "copy": lambda v: len(v.copy()), "union": lambda v: len(v.union([5])), "intersection": lambda v: len(v.intersection({3})),
    "difference": lambda v: len(v.difference([1])), "issubset": lambda v: v.issubset({1, 2}),
    "issuperset": lambda v: v.issuperset([3]), "isdisjoint": lambda v: v.isdisjoint({3}),
    "symmetric_difference": lambda v: len(v.symmetric_difference({3})), "__contains__": lambda v: v.__contains__(3),
    "__or__": lambda v: len(v.__or__({5})), "__and__": lambda v: len(v.__and__({3})), "__sub__": lambda v: len(v.__sub__({3})),
    "__eq__": lambda v: v.__eq__({1, 2}), "__len__": lambda v: v.__len__(),
}  # fmt: skip
CHANGES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list.append": (lambda h: after(lambda c: c.append(h[0][1]), [0]), lambda c: c.append(1)),
    "list.insert": (lambda h: after(lambda c: c.insert(0, h[0][1]), [0]), lambda c: c.insert(0, 1)),
    "list.clear": (lambda h: after(lambda c: c.clear(), list(h)), lambda c: c.clear()),
    "list.reverse": (lambda h: after(lambda c: c.reverse(), list(h[0])), lambda c: c.reverse()),
    "list.__delitem__": (lambda h: after(lambda c: c.__delitem__(0), list(h[0])), lambda c: c.__delitem__(0)),
    "list.__setitem__": (lambda h: after(lambda c: c.__setitem__(slice(0, 1), h[0]), [0]), lambda c: c.__setitem__(0, 7)),
    "list.extend": (lambda h: after(lambda c: c.extend(h[0]), [0]), lambda c: c.extend([1])),
    "list.__iadd__": (lambda h: after(lambda c: c.__iadd__(h[0]), [0]), lambda c: c.__iadd__([1])),
    "list.__init__": (lambda h: after(lambda c: c.__init__(h[0]), [0]), lambda c: c.__init__([1])),
    "list.pop": (lambda h: list(h[0]).pop(), lambda c: c.pop()),
    "list.remove": (lambda h: after(lambda c: c.remove("a"), list(h[0])), lambda c: c.remove(1)),
    "list.sort": (lambda h: after(lambda c: c.sort(key=lambda one: -one[1]), list(h)), lambda c: c.sort()),
    "dict.clear": (lambda h: after(lambda c: c.clear(), _fresh_dict(h)), lambda c: c.clear()),
    "dict.__setitem__": (lambda h: after(lambda c: c.__setitem__("a", h[0][1]), {}), lambda c: c.__setitem__("a", 7)),
    "dict.__delitem__": (lambda h: after(lambda c: c.__delitem__("b"), _fresh_dict(h)), lambda c: c.__delitem__("a")),
    "dict.popitem": (lambda h: after(lambda c: c.popitem(), _fresh_dict(h)), lambda c: c.popitem()),
    "dict.pop": (lambda h: _fresh_dict(h).pop("a"), lambda c: c.pop("a")),
    "dict.update": (lambda h: after(lambda c: c.update(h, z=1), {}), lambda c: c.update(z=1)),
    "dict.__ior__": (lambda h: after(lambda c: c.__ior__(h), {}), lambda c: c.__ior__({"z": 1})),
    "dict.__init__": (lambda h: after(lambda c: c.__init__(one for one in h), {}), lambda c: c.__init__(z=1)),
    "dict.setdefault": (lambda h: _fresh_dict(h).setdefault("a", 3), lambda c: c.setdefault("z", 1)),
    "set.clear": (lambda h: after(lambda c: c.clear(), set(h[0])), lambda c: c.clear()),
    "set.update": (lambda h: len(after(lambda c: c.update(h[0], [3]), {5})), lambda c: c.update([7])),
    "set.__init__": (lambda h: len(after(lambda c: c.__init__(h[0]), {5})), lambda c: c.__init__([7])),
    "set.difference_update": (lambda h: len(after(lambda c: c.difference_update(h[0]), {5, 1})),
                              lambda c: c.difference_update([1])),
    "set.intersection_update": (lambda h: len(after(lambda c: c.intersection_update(h[0]), {5, 1})),
                                lambda c: c.intersection_update([1])),
    "set.add": (lambda h: len(after(lambda c: c.add(h[0][1]), {5})), lambda c: c.add(7)),
    "set.discard": (lambda h: len(after(lambda c: c.discard(h[0][1]), {5})), lambda c: c.discard(1)),
    "set.remove": (lambda h: len(after(lambda c: c.remove(h[0][1]), {5, 1, 7})), lambda c: c.remove(1)),
    "collections.OrderedDict.move_to_end": (lambda h: [*after(lambda c: c.move_to_end("a"), OrderedDict(h))],
                                            lambda c: c.move_to_end("a")),
    "collections.OrderedDict.clear": (lambda h: after(lambda c: c.clear(), OrderedDict(h)), lambda c: c.clear()),
    "collections.OrderedDict.__setitem__": (lambda h: after(lambda c: c.__setitem__("a", h[0][1]), OrderedDict()),
                                            lambda c: c.__setitem__("a", 7)),
    "collections.OrderedDict.__delitem__": (lambda h: after(lambda c: c.__delitem__("b"), OrderedDict(h)),
                                            lambda c: c.__delitem__("a")),
    "collections.OrderedDict.popitem": (lambda h: OrderedDict(h).popitem(last=False)[1], lambda c: c.popitem()),
    "collections.OrderedDict.pop": (lambda h: OrderedDict(h).pop("a"), lambda c: c.pop("a")),
    "collections.OrderedDict.setdefault": (lambda h: OrderedDict(h).setdefault("a", 3), lambda c: c.setdefault("z", 1)),
    "collections.OrderedDict.update": (lambda h: after(lambda c: c.update(h), OrderedDict()), lambda c: c.update(z=1)),
    "collections.OrderedDict.__init__": (lambda h: after(lambda c: c.__init__(h), OrderedDict()),
                                         lambda c: c.__init__(z=1)),
    "collections.deque.append": (lambda h: [*after(lambda c: c.append(h[0][1]), deque())], lambda c: c.append(1)),
    "collections.deque.appendleft": (lambda h: [*after(lambda c: c.appendleft(h[0][1]), deque())],
                                     lambda c: c.appendleft(1)),
    "collections.deque.clear": (lambda h: [*after(lambda c: c.clear(), deque(h[0]))], lambda c: c.clear()),
    "collections.deque.pop": (lambda h: deque(h[0]).pop(), lambda c: c.pop()),
    "collections.deque.popleft": (lambda h: deque(h[0]).popleft(), lambda c: c.popleft()),
    "collections.deque.reverse": (lambda h: [*after(lambda c: c.reverse(), deque(h[0]))], lambda c: c.reverse()),
    "collections.deque.rotate": (lambda h: [*after(lambda c: c.rotate(1), deque(h[0]))], lambda c: c.rotate(1)),
    "collections.deque.extend": (lambda h: [*after(lambda c: c.extend(h[0]), deque())], lambda c: c.extend([1])),
    "collections.deque.extendleft": (lambda h: [*after(lambda c: c.extendleft(h[0]), deque())],
                                     lambda c: c.extendleft([1])),
}  # fmt: skip
STATES: dict[str, Callable[[], Any]] = {
    "list": lambda: [1, 2], "dict": lambda: {"a": 1, "b": 2}, "set": lambda: {1, 2},
    "collections.OrderedDict": lambda: OrderedDict(a=1, b=2), "collections.deque": lambda: deque([1, 2]),
}  # fmt: skip
OF_TUPLE = {
    "index": lambda t: t.index([2]), "count": lambda t: t.count([2]), "__eq__": lambda t: t.__eq__((1, [2])),
    "__ne__": lambda t: t.__ne__((1, [2])), "__lt__": lambda t: t.__lt__((1, [2])), "__hash__": lambda t: t[:1].__hash__() > 0,
    "__add__": lambda t: t.__add__((1,)), "__getitem__": lambda t: t.__getitem__(1)[-1], "__len__": lambda t: t.__len__(),
    "__iter__": lambda t: [*t.__iter__()],
}  # fmt: skip
PROXIED = {
    "get": lambda p: p.get("a"), "keys": lambda p: [*p.keys()], "values": lambda p: [*p.values()], "copy": lambda p: p.copy(),
    "items": lambda p: [*p.items()], "__getitem__": lambda p: p["a"], "__contains__": lambda p: p.__contains__("c"),
    "__len__": lambda p: len(p), "__iter__": lambda p: [*p],
}  # fmt: skip
OTHERS: dict[str, list[Maker]] = {
    "itertools.chain.from_iterable": [
        *of_fresh(lambda h: [*itertools.chain.from_iterable(h)]),
        *of_fresh(lambda h: [*itertools.chain.from_iterable(one for one in h)]),
        *of_fresh(lambda h: [*itertools.chain.from_iterable(map(lambda one: one, h))]),
        *of_fresh(lambda h: [*itertools.chain.from_iterable({1: h[0]}.values())]),
        *of_fresh(lambda h: [*itertools.chain.from_iterable(zip(h, h, strict=True))][0]),
    ],
    "str.join": of_fresh(lambda h: "-".join(str(one[1]) for one in h)),
    "bytes.join": of_fresh(lambda h: len(b"-".join([b"a"] * h[0][1]))),
    **{f"generator.{name}": of_fresh(_sent) for name in ("__iter__", "send", "__getattribute__")},
    "generator.__next__": of_fresh(_closed),
    "generator.close": of_fresh(_closed),
    "generator.throw": of_fresh(_thrown),
    **{f"types.SimpleNamespace.{name}": of_fresh(lambda h: types.SimpleNamespace(k=h[0][1]).k)
       for name in ("__init__", "__getattribute__")},
    **{f"BaseException.{name}": [*of_fresh(_noted), _on_outer(lambda held: held[0].add_note("n"), lambda: [ValueError()])]
       for name in ("__init__", "with_traceback", "add_note")},
    "function.__get__": of_fresh(lambda h: (lambda self: self[0][1]).__get__(h)()),
    "object.__setattr__": [_on_outer(lambda held: setattr(held, "k", held.k + 1), Own),
                           *of_own(lambda held, x: x * after(lambda c: setattr(c, "k", held.k), Own()).k)],
    "object.__getattribute__": of_own(lambda held, x: x * held.k),
    "object.__delattr__": [_on_outer(lambda held: delattr(held, "k"), Own)],
    "object.__init__": of_own(lambda held, x: x * Own().k * held.k),
    "object.__ne__": of_own(lambda held, x: x * (2 if held != Own() else 3) * held.k),
    "object.__eq__": of_own(lambda held, x: x * (2 if held == Own() else 3) * held.k),
    "object.__hash__": of_own(lambda held, x: x * {held: held.k}[held]),
    "object.__format__": of_own(lambda held, x: (x * 2, f"{held}", format(held), object.__format__(held, ""))),
    "object.__init_subclass__": of_own(lambda held, x: x * (object.__init_subclass__() is None) * held.k),
    "module.__getattribute__": [of_state(
        lambda held, x: x * held.__getattribute__("k"), lambda: after(lambda m: setattr(m, "k", 2), types.ModuleType("m")),
        lambda held: setattr(held, "k", 5), lambda held: setattr(held, "k", 2))],
    "type.__getattribute__": _of_class(lambda value, kind, x: x * kind.__getattribute__(kind, "k") * value.z),
    "type.mro": _of_class(lambda value, kind, x: x * len(type(value).mro()) * (2 if kind.mro()[0] is type(value) else 3)),
    "type.__instancecheck__": _of_class(
        lambda value, kind, x: x * (2 if isinstance(value, kind) else 3) * (5 if type.__instancecheck__(kind, value) else 7)),
    "type.__subclasscheck__": _of_class(lambda value, kind, x: x * (2 if issubclass(type(value), kind) else 3)),
    "object.__reduce_ex__": [
        *of_own(lambda held, x: x * held.__reduce_ex__(4)[2]["k"]),
    ],
    "_contextvars.ContextVar.get": _variable(lambda variable, x: x * variable.get()),
    "_contextvars.ContextVar.set": _variable(_set_and_reset),
    "_contextvars.ContextVar.reset": _variable(_set_and_reset),
}  # fmt: skip


def of_tuple(program: Callable[[Any], Any]) -> list[Maker]:
    return [
        of_state(lambda held, x: (x * 2, program(held[0])), lambda: [(1, [2])], lambda held: held[0][1].append(7),
                 lambda held: held[0][1].pop()),
        of_state(lambda held, x: (x * 2, program(held[0])), lambda: [(1, [2])],
                 lambda held: held.__setitem__(0, (0, [2], [2])), lambda held: held.__setitem__(0, (1, [2]))),
    ]  # fmt: skip


def cases_of_method(name: str) -> list[Maker]:
    owner, _, short = name.rpartition(".")
    if name in OTHERS:
        return OTHERS[name]
    if name in CHANGES:
        fresh, outer = CHANGES[name]
        return [*of_fresh(fresh), _on_outer(outer, STATES[owner])]
    if owner == "list":
        return of_list(READS_LIST[short]) if short in READS_LIST else []
    if owner in ("dict", "collections.OrderedDict"):
        kind = dict if owner == "dict" else OrderedDict
        return of_dict(READS_DICT[short], kind) if short in READS_DICT else []
    if owner in ("set", "frozenset") and short in READS_SET:
        return of_set(READS_SET[short]) if owner == "set" else of_frozen(READS_SET[short])
    if owner == "tuple" and short in OF_TUPLE:
        return of_tuple(OF_TUPLE[short])
    if owner == "mappingproxy" and short in PROXIED:
        return of_fresh(lambda h: PROXIED[short](types.MappingProxyType(_fresh_dict(h))))
    plain = case_of_plain(METHODS[name])
    return [] if plain is None else [plain]


_FAMILIES = {"plain": [name for name, one in METHODS.items() if known.METHODS[id(one)] is _of_plain]}


@pytest.mark.parametrize("name", sampled([name for name in METHODS if name not in _FAMILIES["plain"]], 2))
def test_method(name: str) -> None:
    cases = cases_of_method(name)
    assert cases, f"{name} is known, and has no case here."
    for case in cases:
        check(case, SHORT)


@pytest.mark.parametrize("kind", PLAIN_VALUES, ids=lambda kind: kind.__name__)
def test_methods_of_plain_values(kind: type) -> None:
    for name in _FAMILIES["plain"]:
        if METHODS[name].__objclass__ is kind:
            (case,) = cases_of_method(name)
            check(case, ("ccc!c",))


# Classes

Pairs = [["a", 1], ["b", 2]]
OF_CLASSES: dict[Any, list[Callable[[Any], Any]]] = {
    type: [lambda h: type(h[0][1]).__name__],
    super: [lambda h: super(Order, Order(*h[0])).__init__() is None and len(h)],
    object: [lambda h: (object() is None, len(h))],
    types.MethodType: [lambda h: types.MethodType(lambda self, k: self[0][1] * k, h)(2)],
    staticmethod: [lambda h: staticmethod(lambda k: k[0][1])(h)],
    classmethod: [lambda h: classmethod(lambda cls, k: k[0][1]).__get__(None, int)(h)],
    property: [lambda h: property(lambda k: k[0][1]).fget(h)],
    types.SimpleNamespace: [lambda h: types.SimpleNamespace(k=h[0]).k[1]],
    slice: [lambda h: [1, 2, 3, 4, 5, 6][slice(0, h[0][1])]],
    functools.partial: [lambda h: functools.partial(lambda k, j: k[0][1] * j, h)(2), lambda h: functools.partial(len, h)()],
    types.MappingProxyType: [lambda h: types.MappingProxyType(dict(h))["a"]],
    collections.defaultdict: [
        lambda h: collections.defaultdict(list, h)["a"], lambda h: collections.defaultdict(lambda: h[0][1])["z"],
    ],
    list: [lambda h: list(h[0]), lambda h: list(map(lambda one: one[1], h)), lambda h: [list(one) for one in h]],
    tuple: [lambda h: tuple(h[0]), lambda h: tuple(one[1] for one in h)],
    set: [lambda h: len(set(h[0])), lambda h: 5 in set(h[0])],
    frozenset: [lambda h: len(frozenset(h[0])), lambda h: 5 in frozenset(one[1] for one in h)],
    enumerate: [lambda h: [*enumerate(h[0], start=h[0][1])], lambda h: [*enumerate(iterable=h[0])]],
    zip: [lambda h: [*zip(h[0], h[1], strict=True)], lambda h: [*zip(*h, strict=False)]],
    reversed: [lambda h: [*reversed(h[0])]],
    range: [lambda h: [*range(h[0][1])], lambda h: len(range(0, 9, h[0][1]))],
    collections.deque: [lambda h: [*collections.deque(h[0], maxlen=1)]],
    itertools.chain: [lambda h: [*itertools.chain(h[0], h[1])], lambda h: [*itertools.chain(*h)]],
    itertools.islice: [lambda h: [*itertools.islice(h[0], 1, 2)], lambda h: [*itertools.islice(range(9), h[0][1])]],
    itertools.product: [lambda h: [*itertools.product(h[0], repeat=2)]],
    itertools.count: [lambda h: next(itertools.count(h[0][1]))],
    itertools.zip_longest: [lambda h: [*itertools.zip_longest(h[0], [1], fillvalue=h[0][1])]],
    itertools.repeat: [lambda h: [*itertools.repeat(h[0], 2)][0][1], lambda h: [*itertools.repeat(1, h[0][1])]],
    itertools.pairwise: [lambda h: [*itertools.pairwise(h[0])]],
    itertools.combinations: [lambda h: [*itertools.combinations(h[0], 2)]],
    itertools.permutations: [lambda h: [*itertools.permutations(h[0], 2)]],
    itertools.cycle: [lambda h: [*itertools.islice(itertools.cycle(h[0]), 3)]],
    dict: [lambda h: dict(h), lambda h: dict(one for one in h), lambda h: dict(map(lambda one: one, h), z=1)],
    collections.OrderedDict: [lambda h: collections.OrderedDict(h), lambda h: OrderedDict(one for one in h)],
    map: [lambda h: [*map(lambda one: one[1], h)], lambda h: [*map(len, h)], lambda h: [*map(h[0].index, [h[0][1]])]],
    filter: [
        lambda h: len([*filter(lambda one: one[2:], h)]), lambda h: len([*filter(None, [one[1] - 1 for one in h])]),
        lambda h: len([*filter(None, h)]), lambda h: len([*filter(lambda one: one[1] > 4, h)]),
    ],
    itertools.takewhile: [lambda h: len([*itertools.takewhile(lambda one: one[1] < 4, h)])],
    itertools.dropwhile: [lambda h: len([*itertools.dropwhile(lambda one: one[1] < 4, h)])],
    itertools.starmap: [
        lambda h: [*itertools.starmap(lambda name, value: value, h)],
        lambda h: [*itertools.starmap(lambda name, value: value, (one for one in h))],
        lambda h: [*itertools.starmap(operator.mul, [[1, h[0][1]]])],
    ],
    int: [lambda h: int(str(h[0][1]), base=16), lambda h: int(h[0][1] + 0.5)],
    float: [lambda h: float(h[0][1])],
    complex: [lambda h: complex(h[0][1], 1)],
    bool: [lambda h: bool(h[0][2:]), lambda h: bool(h[0][1] - 1), lambda h: bool(h[2:])],
    str: [lambda h: str(h[0][1]), lambda h: str(h)],
    bytes: [lambda h: bytes(h[0][1]), lambda h: bytes(h[0][1:])],
}  # fmt: skip


@pytest.mark.parametrize("kind", known.CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_class(kind: Any) -> None:
    assert kind in OF_CLASSES, f"{kind.__qualname__} is known, and has no case here."
    for program in OF_CLASSES[kind]:
        for case in of_fresh(program):
            check(case, SHORT)
    for case in (of_object(kind),) if kind in (int, float, complex, bool, range, str) else ():
        check(case, SHORT)
