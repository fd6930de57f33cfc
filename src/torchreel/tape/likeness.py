"""What a value is like, part by part, so that another one, or the same one later, can be held against it.

A likeness holds no tensor and nothing that may change: of what is plain the value, of an object its class and the
likeness of its attributes, of what stands for itself alone (functions, classes, modules) the thing itself.
"""

from __future__ import annotations

import enum
import functools
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import torch

from torchreel._torch.autograd import accumulate_hooks, backward_hooks

# The path of a part, and its description: two parts are alike if both are equal.
Part = tuple[str, Any]
_EXACT = frozenset(
    {bool, int, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
_BY_TEXT = frozenset({float, complex})  # zeros have signs, and NaN is not equal to itself
_SELVES = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    enum.Enum,
    torch.nn.Module,
    torch.optim.Optimizer,
    torch.Generator,
)
_SEQUENCES = (list, tuple, deque)
_SETS = (set, frozenset)
_DEEPEST = 12


class Itself:
    """A thing that is like nothing else."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and other.thing is self.thing

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if isinstance(self.thing, enum.Enum):
            return str(self.thing)
        return f"the {type(self.thing).__name__} {getattr(self.thing, '__qualname__', hex(id(self.thing)))}"


class Unknown:
    """An object that cannot be inspected. It equals nothing, not even itself: it may have changed."""

    def __init__(self, thing: Any) -> None:
        self.name = type(thing).__qualname__

    def __repr__(self) -> str:
        return f"a {self.name}, of which nobody can tell whether it is as it was"


class Kind:
    """The class of an object, with what it is besides its parts: the keys of a dict in their order, a length."""

    def __init__(self, cls: type, besides: Any = None) -> None:
        self.cls, self.besides = cls, besides

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and other.cls is self.cls and other.besides == self.besides

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if isinstance(self.besides, list):
            return f"a {self.cls.__qualname__} with the keys {', '.join(text for _, text in self.besides)}"
        return f"a {self.cls.__qualname__}" + (f" of {self.besides}" if self.besides is not None else "")


def likeness(value: Any) -> list[Part]:
    """All parts of a value, in the order in which they are found."""
    return list(_parts("", value, {}, 0))


def difference(was: list[Part], now: list[Part]) -> tuple[str, Any, Any] | None:
    """Where the two first differ, and how; or None."""
    if was == now:
        return None
    for one, other in zip(was, now, strict=False):
        if one != other:
            return one[0], one[1], other[1] if one[0] == other[0] else "not there"
    longer = max(was, now, key=len)
    path, part = longer[min(len(was), len(now))]
    return (path, part, "not there") if longer is was else (path, "not there", part)


def _parts(path: str, value: Any, met: dict[int, int], depth: int) -> Iterator[Part]:
    cls = type(value)
    if cls in _EXACT:
        yield path, (cls, value)
    elif cls in _BY_TEXT:
        yield path, (cls, repr(value))
    elif isinstance(value, torch.Tensor):
        yield from _of_tensor(path, value, met, depth)
    elif isinstance(value, _SELVES):
        yield path, Itself(value)
    elif isinstance(value, types.MethodType):
        yield path, (types.MethodType, Itself(value.__func__), Itself(value.__self__))
    elif id(value) in met:
        yield path, ("the same as", met[id(value)])
    elif depth > _DEEPEST:
        yield path, Unknown(value)
    else:
        met[id(value)] = len(met)
        yield from _of_object(path, value, met, depth + 1)


def _of_tensor(path: str, tensor: torch.Tensor, met: dict[int, int], depth: int) -> Iterator[Part]:
    """Neither its values nor whether it requires a gradient: these are the tape's to judge."""
    yield path, Kind(type(tensor))
    hooks = backward_hooks(tensor), accumulate_hooks(tensor)
    if any(hooks):
        yield f"{path}.hooks", [Itself(hook) for each in hooks for hook in (each or {}).values()]
    if type(tensor) is not torch.Tensor or tensor.__dict__:
        for name, part in tensor.__dict__.items():
            if not isinstance(part, torch.Tensor):
                yield from _parts(f"{path}.{name}", part, met, depth + 1)


def _of_object(path: str, value: Any, met: dict[int, int], depth: int) -> Iterator[Part]:
    parts = _contents(value)
    if parts is None:
        yield path, _of_one_piece(value)
        return
    kind, named = parts
    yield path, kind
    for name, part in named:
        yield from _parts(f"{path}.{name}", part, met, depth)


def _contents(value: Any) -> tuple[Kind, list[tuple[Any, Any]]] | None:
    """Its class, and all that is in it by name; None if it cannot be looked into."""
    cls = type(value)
    attributes = list(_attributes(value))
    if isinstance(value, Mapping):
        keys = [(type(key), repr(key)) for key in value]
        return Kind(cls, keys), [*value.items(), *attributes]
    if isinstance(value, _SEQUENCES):
        return Kind(cls, len(value)), [*enumerate(value), *attributes]
    if isinstance(value, _SETS):  # in the order in which they are met, which two equal sets may not share
        return Kind(cls, len(value)), [*enumerate(value), *attributes]
    if isinstance(value, functools.partial):
        return Kind(cls), [("func", value.func), ("args", value.args), ("keywords", value.keywords), *attributes]
    if isinstance(value, numpy.ndarray | numpy.generic | bytearray | memoryview | range | slice):
        return None
    if hasattr(value, "__dict__") or (attributes and cls.__module__ != "builtins"):
        return Kind(cls), attributes
    return None


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            plain = f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            if plain not in ("__dict__", "__weakref__") and hasattr(value, plain):
                yield plain, getattr(value, plain)


def _of_one_piece(value: Any) -> Any:
    if isinstance(value, numpy.ndarray | numpy.generic):
        array = numpy.asarray(value)
        if array.dtype.hasobject:
            return Unknown(value)
        return type(value), str(array.dtype), array.shape, array.strides, array.tobytes()
    if isinstance(value, bytearray | memoryview):
        return type(value), bytes(value)
    if isinstance(value, range | slice):
        return type(value), repr(value)
    if type(value) is object:
        return Itself(value)
    # A value of a class that says when two are equal and allows to be hashed does not change: a date, a Decimal.
    cls = type(value)
    if getattr(cls, "__hash__", None) is not None and getattr(cls, "__eq__", None) is not object.__eq__:
        return cls, value, repr(value)
    return Unknown(value)
