"""What is known of a type without asking an object of it: whether it can change, and whether Python code made it."""

from __future__ import annotations

import abc
import collections
import collections.abc
import functools
import types
import typing
from typing import Any

import torch

from torchreel import _graphs
from torchreel._cpython.interpreter import CachedFunction
from torchreel._graphs import NULL, type_lookup
from torchreel._torch.c_functions import INSTANCE_METHOD

HEAP_TYPE, IMMUTABLE_TYPE = 1 << 9, 1 << 8
NoneType = type(None)

# Objects of these cannot change, and hold nothing that can, but for tuples and frozensets, whose items are looked at
# where they are used.
PLAIN: frozenset[type] = frozenset(
    {int, float, complex, str, bytes, bool, NoneType, type(...), type(NotImplemented), range, slice, tuple, frozenset,
     types.CodeType, types.GenericAlias, types.UnionType, torch.dtype, torch.device, torch.layout, torch.memory_format,
     torch.Size, torch.finfo, torch.iinfo, torch.qscheme, type(collections.abc.Callable[[int], int])}
)  # fmt: skip
# Equal means the same: no identity, no contents.
ATOMS: frozenset[type] = PLAIN - {tuple, frozenset, torch.Size, slice}
NUMBERS = (int, float, complex)
# Objects of these have neither __bool__ nor __len__.
ALWAYS_TRUE: frozenset[type] = frozenset(
    {types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type, types.GeneratorType,
     types.MethodDescriptorType, types.MethodWrapperType, functools.partial, abc.ABCMeta, torch.Generator}
)  # fmt: skip
# C classes that Python classes may be derived from: their own special methods are known.
BASES: frozenset[Any] = frozenset(
    {object, dict, list, tuple, set, frozenset, int, float, str, collections.OrderedDict, typing.Generic,
     collections.defaultdict, type, types.ModuleType}
)  # fmt: skip

_weak_offset = type.__dict__["__weakrefoffset__"].__get__


def takes_weak_references(value: object) -> bool:
    return bool(_weak_offset(type(value)))


def is_heap(kind: type) -> bool:
    return bool(_graphs.type_flags(kind) & HEAP_TYPE)


def can_change(kind: type) -> bool:
    """Whether attributes of a class can be set."""
    return not _graphs.type_flags(kind) & IMMUTABLE_TYPE


_python_classes: dict[type, bool] = {}


def is_python_class(kind: type) -> bool:
    """Made by a class statement, and so are its bases but for a few of C.

    Special methods of such a class are Python functions, which are followed, or those of C that are known.
    """
    found = _python_classes.get(kind)
    if found is None:
        found = _graphs.is_of_python(kind) and all(
            _graphs.is_of_python(base) or base in BASES or issubclass(base, BaseException)
            for base in type.__dict__["__mro__"].__get__(kind)
        )
        if len(_python_classes) < 4096:
            _python_classes[kind] = found
    return found


def _names_of_slots() -> frozenset[str]:
    kinds = (object, type, int, float, str, list, dict, set, types.GeneratorType, types.FunctionType, collections.deque)
    found = {name for kind in kinds for name, one in vars(kind).items() if isinstance(one, types.WrapperDescriptorType)}
    more = """
        __call__ __get__ __set__ __delete__ __getattr__ __enter__ __exit__ __bool__ __length_hint__
        __reversed__ __next__ __missing__ __format__ __index__ __instancecheck__ __subclasscheck__ __bytes__
        __floor__ __ceil__ __trunc__ __round__ __complex__ __matmul__ __rmatmul__ __imatmul__ __prepare__
        __set_name__ __mro_entries__ __class_getitem__ __new__
    """
    return frozenset(found) | frozenset(more.split())


_NAMES_OF_SLOTS = _names_of_slots()
_OF_CONSTANTS = [one for kind in (int, float, str, bytes) for one in vars(kind).values() if callable(one)]
_special_of_c: dict[type, tuple[int, str]] = {}


def special_of_c(kind: type) -> str:
    """A special method of a Python class that is C code, and not that of a base: Python would run it unseen."""
    if not is_python_class(kind):
        return ""
    version = _graphs.type_version(kind)
    found = _special_of_c.get(kind)
    if found is None or found[0] != version:
        found = version, _find_special_of_c(kind)
        if version and len(_special_of_c) < 4096:
            _special_of_c[kind] = found
    return found[1]


def _find_special_of_c(kind: type) -> str:
    bases = [type.__dict__["__dict__"].__get__(base) for base in type.__dict__["__mro__"].__get__(kind)]
    for base, held in zip(type.__dict__["__mro__"].__get__(kind), bases, strict=True):
        if not _graphs.is_of_python(base):
            continue
        for name in _NAMES_OF_SLOTS.intersection(held):
            one = held[name]
            natural = any(other.get(name) is one for other in bases if other is not held) or any(
                one is known for known in _OF_CONSTANTS
            )
            if _is_c_callable(one) and not natural:
                return name
    return ""


def _is_c_callable(value: object) -> bool:
    if isinstance(value, (staticmethod, classmethod, types.MethodType)):
        return _is_c_callable(value.__func__)
    if isinstance(value, types.FunctionType) or not callable(value):
        return False
    if isinstance(value, type) and issubclass(value, types.GenericAlias):
        return False  # list[int] of a class: holds both, and asks neither
    if isinstance(value, types.WrapperDescriptorType) and value.__objclass__ in (*ATOMS, tuple, object):
        return False  # of a class whose objects cannot change: an enum of ints has int.__repr__
    return not is_python_class(value if isinstance(value, type) else type(value))


def same_slot(value: object, base: type, name: str) -> bool:
    """Whether a special method is that of a base class."""
    return type_lookup(type(value), name) is type_lookup(base, name)


def iterates_as(value: object, base: type) -> bool:
    return same_slot(value, base, "__iter__") or (
        isinstance(value, collections.OrderedDict) and same_slot(value, collections.OrderedDict, "__iter__")
    )


def iterates_in_python(value: object) -> bool:
    return any(isinstance(type_lookup(type(value), name), types.FunctionType) for name in ("__iter__", "__getitem__"))


def has_finalizer(value: object) -> bool:
    """Whether something happens when an object goes; what generators do then is asked at the end of the call."""
    if isinstance(value, types.GeneratorType) or not _graphs.is_of_python(type(value)):
        return False
    return type_lookup(type(value), "__del__") is not NULL


def has_nan(value: object, depth: int = 0) -> bool:
    """Whether a value is, or has in it, a number that is not equal to itself."""
    if isinstance(value, (float, complex)):
        return value != value
    return depth < 8 and isinstance(value, (tuple, frozenset)) and any(has_nan(item, depth + 1) for item in value)


def is_descriptor(found: object) -> bool:
    return type_lookup(type(found), "__get__") is not NULL


def is_plain_to_the_bottom(value: object, depth: int = 0) -> bool:
    kind = type(value)
    if kind in (tuple, frozenset, torch.Size):
        return depth < 8 and all(is_plain_to_the_bottom(item, depth + 1) for item in value)  # type: ignore[attr-defined]
    if kind is slice:
        return all(is_plain_to_the_bottom(part, depth + 1) for part in (value.start, value.stop, value.step))  # type: ignore[attr-defined]
    return kind in ATOMS


def compares_by_identity(value: object) -> bool:
    """Whether such an object can be a key of a dict without its code being run."""
    kind = type(value)
    if kind in (tuple, frozenset):
        return all(is_plain_to_the_bottom(item) or compares_by_identity(item) for item in value)  # type: ignore[attr-defined]
    if is_plain_to_the_bottom(value) or isinstance(value, (type, types.FunctionType, torch.Tensor)):
        return True
    return same_slot(value, object, "__eq__") and same_slot(value, object, "__hash__")


DESCRIPTORS = (
    types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, classmethod, staticmethod, property,
    types.ClassMethodDescriptorType, type, functools.cached_property, types.BuiltinFunctionType, types.MethodType,
    CachedFunction, INSTANCE_METHOD,
    type(vars(collections.namedtuple("_Sample", "field"))["field"]),
)  # fmt: skip
