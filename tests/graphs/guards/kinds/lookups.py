"""How Python finds what to do: descriptors, special methods that come later, aliases, comparisons, names."""

from __future__ import annotations

import builtins
import collections
import dataclasses
import math
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import torch

from tests.graphs.guards.kinds.registry import Box, attribute, enter, grown, item, kind, patched
from tests.graphs.guards.lockstep import Case, Change, Given, module_of, sample

Tensor = torch.Tensor


@kind
def descriptor_that_becomes_one_of_data() -> Any:
    """The class that is asked stays as it is: that of the descriptor changes."""

    class Descriptor:
        def __get__(self, owner: Any, kind: Any = None) -> float:
            return 5.0

    class Owner:
        k = Descriptor()

    owner = Owner()
    owner.__dict__["k"] = 1.0
    return lambda x: x * owner.k, attribute(Descriptor, "__set__", lambda self, owner, value: None)


@kind
def descriptor_whose_get_is_replaced() -> Any:
    class Descriptor:
        def __get__(self, owner: Any, kind: Any = None) -> float:
            return 1.0

    class Owner:
        k = Descriptor()

    owner = Owner()
    return lambda x: x * owner.k, attribute(Descriptor, "__get__", lambda self, owner, kind=None: 5.0)


@kind
def attribute_that_becomes_a_descriptor() -> Any:
    class Thing:
        k = 1.0

    class Owner:
        thing = Thing()

    owner = Owner()
    return lambda x: x * owner.thing.k, attribute(Thing, "__get__", lambda self, owner, kind=None: Box(k=5.0))


@kind
def attribute_of_a_metaclass_that_becomes_one_of_data() -> Any:
    class Meta(type):
        pass

    class Owner(metaclass=Meta):
        k = 1.0

    return lambda x: x * Owner.k, attribute(Meta, "k", property(lambda cls: 5.0))


@kind
def class_of_a_module_replaced_by_one_with_a_property() -> Any:
    module = module_of("classed", "K = 1.0\n")

    class Other(types.ModuleType):
        K = property(lambda self: 5.0)

    return lambda x: x * module.K, attribute(module, "__class__", Other)


@kind
def class_that_an_object_claims() -> Any:
    class Owner:
        claimed: Any = int

        @property
        def __class__(self) -> Any:
            return type(self).claimed

    owner = Owner()
    return lambda x: x * (2.0 if isinstance(owner, str) else 3.0), attribute(Owner, "claimed", str)


def _bare() -> Any:
    class Bare:
        pass

    return Bare


# A class without the method, what asks for it, and the method that comes.
_LATER: dict[str, tuple[Callable[[Any], Any], Callable[..., Any]]] = {
    "__bool__": (lambda one: 2.0 if one else 3.0, lambda self: False),
    "__len__": (lambda one: 2.0 if one else 3.0, lambda self: 0),
    "__eq__": (lambda one: 2.0 if one == 1 else 3.0, lambda self, other: True),
    "__ne__": (lambda one: 2.0 if one != 1 else 3.0, lambda self, other: False),
    "__hash__": (lambda one: 2.0 if hash(one) == 1 else 3.0, lambda self: 1),
    "__str__": (lambda one: 2.0 if "mine" in f"{one}" else 3.0, lambda self: "mine"),
    "__repr__": (lambda one: 2.0 if "mine" in repr([one]) else 3.0, lambda self: "mine"),
    "__format__": (lambda one: 2.0 if "mine" in f"{one}" else 3.0, lambda self, spec: "mine"),
    "__call__": (lambda one: 2.0 if callable(one) else 3.0, lambda self: 1),
    "__getattr__": (lambda one: getattr(one, "k", 3.0), lambda self, name: 2.0),
    "__float__": (lambda one: 2.0 if hasattr(type(one), "__float__") else 3.0, lambda self: 1.0),
    "__iter__": (lambda one: 2.0 if hasattr(one, "__iter__") else 3.0, lambda self: iter([])),
    "__radd__": (lambda one: _tried(lambda: 1.0 + one), lambda self, other: 5.0),
    "__lt__": (lambda one: _tried(lambda: 2.0 if one < 1 else 3.0), lambda self, other: True),
    "__contains__": (lambda one: _tried(lambda: 2.0 if 1 in one else 3.0), lambda self, other: True),
    "__getitem__": (lambda one: _tried(lambda: one[0]), lambda self, key: 5.0),
    "__enter__": (lambda one: 2.0 if hasattr(one, "__enter__") else 3.0, lambda self: 1.0),
}


def _tried(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except TypeError:
        return 7.0


def _comes(name: str, ask: Callable[[Any], Any], method: Callable[..., Any]) -> Any:
    one = _bare()()
    return lambda x: x * ask(one), _of_class(type(one), name, method)


def _of_class(owner: type, name: str, value: Any) -> Change:
    before = owner.__dict__.get(name)
    undo = (lambda: delattr(owner, name)) if before is None else (lambda: setattr(owner, name, before))
    return Change(lambda: setattr(owner, name, value), undo)


for _name, (_ask, _method) in _LATER.items():
    enter(f"{_name} that a class gets later", lambda n=_name, a=_ask, m=_method: _comes(n, a, m), brief=True)


def _of(base: type, value: Any) -> Callable[[], Any]:
    """An object of a class of its own, derived from one of C."""
    return lambda: type(base.__name__.title(), (base,), {})(value)


# Such an object, the method that its class gets later, and what asks for it.
_DERIVED: dict[str, tuple[Callable[[], Any], str, Callable[[Any], Any], Callable[..., Any]]] = {
    "list by len": (_of(list, [1.0]), "__len__", len, lambda self: 5),
    "list by item": (_of(list, [1.0]), "__getitem__", lambda one: one[0], lambda self, key: 5.0),
    "list by loop": (_of(list, [1.0]), "__iter__", lambda one: sum(k for k in one), lambda self: iter([5.0])),
    "list by in": (_of(list, [1.0]), "__contains__", lambda one: 2.0 if 7 in one else 3.0, lambda self, key: True),
    "dict by item": (_of(dict, {"a": 1.0}), "__getitem__", lambda one: one["a"], lambda self, key: 5.0),
    "dict by missing": (_of(dict, {"a": 1.0}), "__missing__", lambda one: _missed(one), lambda self, key: 5.0),
    "dict by get": (_of(dict, {"a": 1.0}), "get", lambda one: one.get("a"), lambda self, key: 5.0),
    "dict by values": (_of(dict, {"a": 1.0}), "values", lambda one: sum(one.values()), lambda self: [5.0]),
    "number by product": (_of(float, 2.0), "__mul__", lambda one: one * 2.0, lambda self, other: 5.0),
    "number by reversed sum": (_of(float, 2.0), "__radd__", lambda one: 1.0 + one, lambda self, other: 5.0),
    "number by truth": (_of(float, 2.0), "__bool__", lambda one: 2.0 if one else 3.0, lambda self: False),
    "int by equality": (_of(int, 1), "__eq__", lambda one: 2.0 if one == 1 else 3.0, lambda self, other: False),
    "text by length": (_of(str, "ab"), "__len__", len, lambda self: 5),
    "tuple by item": (_of(tuple, [1.0]), "__getitem__", lambda one: one[0], lambda self, key: 5.0),
    "set by in": (_of(set, [1.0]), "__contains__", lambda one: 2.0 if 7 in one else 3.0, lambda self, key: True),
}


def _missed(one: Any) -> float:
    try:
        return float(one["none"])
    except KeyError:
        return 7.0


def _derived(make: Callable[[], Any], name: str, ask: Callable[[Any], Any], method: Callable[..., Any]) -> Any:
    one = make()
    return lambda x: x * float(ask(one)), _of_class(type(one), name, method)


for _name, _parts in _DERIVED.items():
    enter(f"class derived from a {_name}", lambda parts=_parts: _derived(*parts), brief=True)


@kind
def attribute_of_a_number_of_ones_own() -> Any:
    class Real(float):
        pass

    k = Real(2.0)
    k.extra = 1.0  # type: ignore[attr-defined]
    return lambda x: x * k * k.extra, attribute(k, "extra", 5.0)  # type: ignore[attr-defined]


def _alias_list(held: Any) -> None:
    alias = held
    alias += [1]


def _alias_times(held: Any) -> None:
    alias = held
    alias *= 2


def _alias_or(held: Any) -> None:
    alias = held
    alias |= {len(alias): 1} if isinstance(alias, dict) else {len(alias)}


def _alias_xor(held: Any) -> None:
    alias = held
    alias ^= {1}


def _alias_add_one(held: Any) -> None:
    alias = held
    alias += 1


def _alias_deque(held: Any) -> None:
    alias = held
    alias += (1,)


def _alias_bytes(held: Any) -> None:
    alias = held
    alias += b"a"


def _alias_array(held: Any) -> None:
    alias = held
    alias += type(alias)("d", [1.0])


class _Added:
    """Its += changes it."""

    def __init__(self) -> None:
        self.total = 0

    def __iadd__(self, other: int) -> Any:
        self.total += other
        return self


def _alias_object(held: Any) -> None:
    alias = held
    alias += 1


def _array() -> Any:
    import array

    return array.array("d", [1.0])


_ALIASES: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "list +=": (lambda: [0], _alias_list),
    "list *=": (lambda: [0], _alias_times),
    "set |=": (lambda: {0}, _alias_or),
    "set ^=": (lambda: {0}, _alias_xor),
    "dict |=": (lambda: {0: 1}, _alias_or),
    "array of numpy +=": (lambda: numpy.zeros(2), _alias_add_one),
    "tensor +=": (lambda: torch.zeros(2), _alias_add_one),
    "deque +=": (lambda: collections.deque([0]), _alias_deque),
    "bytearray +=": (lambda: bytearray(b"a"), _alias_bytes),
    "array +=": (_array, _alias_array),
    "object +=": (_Added, _alias_object),
}


def _aliased(make: Callable[[], Any], change: Callable[[Any], None], given: bool) -> Case:
    held = make()

    def function(x: Tensor, held: Any = held) -> Tensor:
        change(held)
        return x * 2

    arguments = (lambda n: Given(sample(n), held)) if given else (lambda n: Given(sample(n)))
    return Case(function, given=arguments, observe=lambda: held)


for _name, (_make, _change) in _ALIASES.items():
    enter(f"{_name} of an alias of state", lambda m=_make, c=_change: _aliased(m, c, False), brief=True)
    enter(f"{_name} of an argument", lambda m=_make, c=_change: _aliased(m, c, True), brief=True)


@dataclasses.dataclass(order=True)
class _Config:
    k: float = 1.0
    parts: list[float] = dataclasses.field(default_factory=lambda: [1.0])


def _pairs(make: Callable[[], Any]) -> Callable[[], tuple[Any, Any]]:
    return lambda: (make(), make())


_COMPARED: dict[str, tuple[Callable[[], tuple[Any, Any]], Callable[[Any], Change]]] = {
    "data class": (_pairs(_Config), lambda one: grown(one.parts, 2.0)),
    "namespace": (_pairs(lambda: types.SimpleNamespace(a=[1.0])), lambda one: grown(one.a, 2.0)),
    "named tuple": (_pairs(lambda: collections.namedtuple("pair", "a b")([1.0], 2)), lambda one: grown(one.a, 2.0)),
    "deque": (_pairs(lambda: collections.deque([[1.0]])), lambda one: grown(one[0], 2.0)),
    "dict of lists": (_pairs(lambda: {"a": [1.0]}), lambda one: grown(one["a"], 2.0)),
    "ordered dict": (
        _pairs(lambda: collections.OrderedDict(a=1, b=2)),
        lambda one: Change(lambda: one.move_to_end("a"), lambda: one.move_to_end("b")),
    ),
    "set": (_pairs(lambda: {1.0}), lambda one: Change(lambda: one.add(2.0), lambda: one.discard(2.0))),
    "tuple of lists": (_pairs(lambda: ([1.0], 2)), lambda one: grown(one[0], 2.0)),
    "counter": (_pairs(lambda: collections.Counter("a")), lambda one: item(one, "a", 5)),
    "array of numpy": (_pairs(lambda: numpy.zeros(2)), lambda one: item(one, 0, 5.0)),
    "view of a dict": (_pairs(lambda: {"a": 1.0}), lambda one: item(one, "a", 5.0)),
}


def _compared(make: Callable[[], tuple[Any, Any]], change: Callable[[Any], Change], view: bool) -> Any:
    one, other = make()

    def same() -> bool:
        found = one.items() == other.items() if view else one == other
        return bool(found.all()) if isinstance(found, numpy.ndarray) else bool(found)

    return lambda x: x * (2.0 if same() else 3.0), change(one)


for _name, (_make, _change) in _COMPARED.items():
    _view = _name == "view of a dict"
    enter(f"equality of a {_name}", lambda m=_make, c=_change, v=_view: _compared(m, c, v), brief=True)


@kind
def order_of_data_classes() -> Any:
    one, other = _Config(), _Config(parts=[1.5])
    return lambda x: x * (2.0 if one < other else 3.0), item(one.parts, 0, 9.0)


# What a function, a method or a class is asked for besides being called.
def _parts_of_a_function() -> tuple[Any, Any]:
    k = 1.0

    def helper(x: float = 2.0) -> float:
        return x * k

    return helper, helper.__closure__[0]  # type: ignore[index]


@kind
def contents_of_a_cell_that_is_asked_for() -> Any:
    helper, cell = _parts_of_a_function()
    return lambda x: x * helper.__closure__[0].cell_contents, attribute(cell, "cell_contents", 5.0)


@kind
def globals_of_a_function_that_are_asked_for() -> Any:
    module = module_of("asked", "K = 1.0\n\ndef helper():\n    pass\n")
    return lambda x: x * module.helper.__globals__["K"], attribute(module, "K", 5.0)


@kind
def object_of_a_method_that_is_asked_for() -> Any:
    class Owner:
        k = 1.0

        def get(self) -> float:
            return self.k

    owner = Owner()
    bound = owner.get
    return lambda x: x * bound.__self__.k * bound.__func__(owner), attribute(owner, "k", 5.0)  # type: ignore[attr-defined]


@kind
def defaults_of_a_function_that_are_asked_for() -> Any:
    helper, _ = _parts_of_a_function()
    return lambda x: x * helper.__defaults__[0], attribute(helper, "__defaults__", (5.0,))


@kind
def code_of_a_function_that_is_asked_for() -> Any:
    def helper(a: int, b: int) -> None:
        pass

    def other(a: int, b: int, c: int) -> None:
        pass

    return lambda x: x * helper.__code__.co_argcount, attribute(helper, "__code__", other.__code__)


@kind
def getter_of_a_property_that_is_asked_for() -> Any:
    class Owner:
        k = property(lambda self: 1.0)

    change = patched(Owner, "k", property(lambda self: 5.0))
    return lambda x: x * Owner.__dict__["k"].fget(None) * vars(Owner)["k"].fget(None), change


@kind
def bases_of_a_class_that_are_asked_for() -> Any:
    class One:
        pass

    class Two:
        pass

    class Owner(One):
        pass

    return lambda x: x * len(Owner.__bases__[0].__name__) * len(Owner.__mro__), attribute(
        Owner, "__bases__", (One, Two)
    )


@kind
def arguments_of_a_partial_that_are_asked_for() -> Any:
    import functools

    made = functools.partial(max, 1.0, 2.0)
    holder = Box(made=made)
    return lambda x: x * sum(holder.made.args), attribute(holder, "made", functools.partial(max, 5.0))


@kind
def proxy_of_an_object() -> Any:
    box = Box(k=1.0)
    proxy = weakref.proxy(box)
    case = Case(lambda x: x * proxy.k, [attribute(box, "k", 5.0)])
    case.observe = lambda: box
    return case


@kind
def weak_reference_to_a_method() -> Any:
    class Owner:
        k = 1.0

        def get(self) -> float:
            return self.k

    owner = Owner()
    reference = weakref.WeakMethod(owner.get)
    case = Case(lambda x: x * reference()(), [attribute(owner, "k", 5.0)])  # type: ignore[misc]
    case.observe = lambda: owner
    return case


@kind
def match_arguments_of_a_class() -> Any:
    class Point:
        __match_args__ = ("a", "b")

        def __init__(self) -> None:
            self.a, self.b = 2.0, 3.0

    point = Point()

    def function(x: Tensor) -> Tensor:
        match point:
            case Point(first):
                return x * first
        return x

    return function, attribute(Point, "__match_args__", ("b", "a"))


@kind
def import_that_is_replaced() -> Any:
    module_of("imports", "K = 1.0\n")
    real = builtins.__import__

    def other(name: str, *args: Any, **kwargs: Any) -> Any:
        return Box(K=5.0) if name == "kinds_imports" else real(name, *args, **kwargs)

    def function(x: Tensor) -> Tensor:
        import kinds_imports  # type: ignore[import-not-found]

        return x * kinds_imports.K

    return function, patched(builtins, "__import__", other)


@kind
def constant_of_a_module_of_c() -> Any:
    return lambda x: x * math.pi * torch.pi, patched(math, "pi", 3.0), patched(torch, "pi", 3.0)


@kind
def errors_that_are_caught_by_state() -> Any:
    box = Box(errors=(ValueError,))

    def function(x: Tensor) -> Tensor:
        try:
            raise KeyError("mine")
        except box.errors:
            return x * 2

    return function, attribute(box, "errors", (KeyError, ValueError))


@kind
def error_of_state_that_is_raised() -> Any:
    error = ValueError("mine")

    def function(x: Tensor) -> Tensor:
        try:
            raise error
        except ValueError as caught:
            return x * len(str(caught))

    def depth() -> int:
        count, trace = 0, error.__traceback__
        while trace is not None:
            count, trace = count + 1, trace.tb_next
        return count

    return Case(function, [attribute(error, "args", ("another",))], observe=depth)


@kind
def errors_of_numpy() -> Any:
    def function(x: Tensor) -> Tensor:
        a = numpy.array([1.0])
        return x * (1.0 + float(numpy.isinf(a / (a - 1)).sum()))

    return function, Change(lambda: numpy.seterr(divide="raise"), lambda: numpy.seterr(divide="warn"))


@kind
def codec_that_is_registered() -> Any:
    import codecs

    box = Box(k=b"a")

    def encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
        return box.k, len(text)

    info = codecs.CodecInfo(encode, codecs.utf_8_decode, name="kindscodec")
    search = lambda name: info if name == "kindscodec" else None  # noqa: E731
    codecs.register(search)
    change = attribute(box, "k", b"abcde")
    return Case(lambda x: x * len("x".encode("kindscodec")), [change], close=lambda: codecs.unregister(search))


@kind
def identity_asked_within_a_hash() -> Any:
    """A class of one's own may ask for an argument's address wherever it likes."""
    known = torch.ones(3)
    box = Box(same=True)

    class Key:
        def __init__(self, value: Tensor) -> None:
            self.value = value

        def __eq__(self, other: object) -> bool:
            return id(self.value) == id(other.value)  # type: ignore[attr-defined]

        def __hash__(self) -> int:
            return id(self.value)

    key = Key(known)
    given = lambda n: Given(known if box.same else torch.ones(3))  # noqa: E731
    return Case(lambda x: x * (2.0 if Key(x) == key else 3.0), [attribute(box, "same", False)], given=given)


@kind
def argument_among_known_tensors() -> Any:
    known = torch.ones(3)
    table, box = {known: 2.0}, Box(same=True)
    given = lambda n: Given(known if box.same else torch.ones(3))  # noqa: E731
    return Case(lambda x: x * table.get(x, 3.0), [attribute(box, "same", False)], given=given)


@kind
def argument_that_is_a_tensor_of_state() -> Any:
    known, box = torch.ones(3), Box(same=True)
    given = lambda n: Given(known if box.same else torch.ones(3))  # noqa: E731
    case = Case(lambda x: x * (2.0 if x is known else 3.0), [attribute(box, "same", False)], given=given)
    case.observe = lambda: known
    return case


@kind
def argument_that_is_a_tensor_of_state_and_written() -> Any:
    known, box = torch.ones(3), Box(same=False)

    def function(x: Tensor) -> Tensor:
        known.add_(1)
        return x * 2

    given = lambda n: Given(known if box.same else torch.ones(3))  # noqa: E731
    return Case(function, [attribute(box, "same", True)], given=given, observe=lambda: known)
