"""Looking into objects without running any code of theirs: no properties, no __getattr__, no __eq__."""

from __future__ import annotations

import gc
from types import FunctionType, MemberDescriptorType
from typing import Any

from torchreel import _graphs

MISSING: Any = object()

# Those of type itself: a metaclass may have its own.
_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__
_weak_offset = type.__dict__["__weakrefoffset__"].__get__
_flags = type.__dict__["__flags__"].__get__
_HEAP_TYPE = 1 << 9

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


def is_a(thing: object, kind: type | tuple[type, ...]) -> bool:
    """As isinstance, which asks an object for its __class__."""
    return issubclass(type(thing), kind)


def is_name(thing: object) -> bool:
    """Anything may be a key of an object's __dict__."""
    return type(thing) is str


def is_plain(thing: object) -> bool:
    if type(thing) is tuple:
        return all(map(is_plain, thing))
    return type(thing) in _PLAIN


def mro(kind: type) -> tuple[type, ...]:
    bases: tuple[type, ...] = _mro(kind)
    return bases


def can_change(kind: type) -> bool:
    """Whether attributes of a class can be set: those of classes written in C cannot."""
    return bool(_flags(kind) & _HEAP_TYPE)


def find(kind: type, name: str) -> tuple[type | None, Any]:
    """The class of the MRO that has a name, and what it is there."""
    for base in mro(kind):
        value = _class_dict(base).get(name, MISSING)
        if value is not MISSING:
            return base, value
    return None, MISSING


def instance_dict(thing: object) -> dict[str, Any] | None:
    return _graphs.instance_dict(thing)


def finds_by_code(thing: object, name: str) -> bool:
    """Whether Python code of its class may have a say in what an attribute is: __getattribute__, or __getattr__."""
    kind = type(thing)
    return type(find(kind, "__getattribute__")[1]) is FunctionType or (
        find(kind, name)[1] is MISSING and type(find(kind, "__getattr__")[1]) is FunctionType
    )


def is_ordinary(thing: object) -> bool:
    """Whether attributes are found as object has it; those of dicts, tensors and other classes in C need not be."""
    return find(type(thing), "__getattribute__")[0] is object


def is_data_descriptor(thing: object) -> bool:
    return find(type(thing), "__set__")[1] is not MISSING


def is_member(thing: object) -> bool:
    """Whether it is an attribute of __slots__."""
    return type(thing) is MemberDescriptorType


def can_be_followed(thing: object) -> bool:
    """Whether there can be a weak reference to it; or it refers to plain values alone, and so may be kept."""
    return bool(_weak_offset(type(thing))) or all(is_plain(one) or is_a(one, type) for one in gc.get_referents(thing))
