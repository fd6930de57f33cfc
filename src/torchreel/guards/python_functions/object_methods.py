"""Rules of methods that all objects have, of generators, exceptions and context variables."""

from __future__ import annotations

import contextvars
import types
from typing import TYPE_CHECKING, Any

from torchreel._graphs import instance_dict, type_lookup
from torchreel.guards import attributes
from torchreel.guards.eager import EagerError
from torchreel.guards.python_functions.functions import (
    hash_rule,
    identity_rule,
    isinstance_rule,
    issubclass_rule,
    reads_nothing,
    text_rule,
)
from torchreel.guards.python_functions.methods import change
from torchreel.guards.python_functions.table import METHODS, Rule, Told, know, methods_of
from torchreel.guards.types_known import is_python_class

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

_FRESH_ONLY = [*methods_of(types.GeneratorType, "__iter__", "__next__", "send", "throw", "close", "__getattribute__"),
               *methods_of(types.SimpleNamespace, "__init__", "__getattribute__"),
               *methods_of(types.MappingProxyType, "get", "keys", "values", "items", "copy", "__getitem__",
                            "__contains__", "__len__", "__iter__")]  # fmt: skip


def _of_fresh(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if not call.is_fresh(values[0]):
        raise EagerError(f"uses a {type(values[0]).__name__} that was made before the call")
    return call.make if isinstance(values[0], types.MappingProxyType) else None


know(METHODS, _of_fresh, *_FRESH_ONLY)


def _of_exception(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return change(call, values, keywords)


know(METHODS, _of_exception, *methods_of(BaseException, "__init__", "with_traceback", "add_note"))


def _bind(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """function.__get__(instance, owner): a new method, which holds both and asks neither."""
    return call.make if len(values) > 1 and values[1] is not None else None


know(METHODS, _bind, vars(types.FunctionType)["__get__"])


def _object_setattr(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    attributes.store(call, values[0], values[1], values[2], by_object=True)
    return None


def _object_getattribute(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return attributes.read(call, values[0], values[1])


def _object_delattr(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    attributes.delete(call, values[0], values[1])
    return None


know(METHODS, _object_setattr, vars(object)["__setattr__"])
know(METHODS, _object_getattribute, *(vars(kind)["__getattribute__"] for kind in (object, types.ModuleType, type)))
know(METHODS, _object_delattr, vars(object)["__delattr__"])
know(METHODS, reads_nothing, *methods_of(object, "__init__", "__init_subclass__", "__ne__"),
     *methods_of(type, "mro"))  # fmt: skip
know(METHODS, hash_rule, vars(object)["__hash__"])
know(METHODS, identity_rule, vars(object)["__eq__"])


def _object_format(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return text_rule(call, values[:1], {})


def _type_check(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """type.__instancecheck__, type.__subclasscheck__."""
    check = issubclass_rule if isinstance(values[1], type) else isinstance_rule
    return check(call, [values[1], values[0]], keywords)


know(METHODS, _object_format, vars(object)["__format__"])
know(METHODS, _type_check, *methods_of(type, "__instancecheck__", "__subclasscheck__"))
_OF_COPIES = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__")


def _reduce(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """object.__reduce_ex__, by which copy.deepcopy() takes an object apart: all that it holds is read."""
    value = values[0]
    if not is_python_class(type(value)) or isinstance(value, (list, dict, set, tuple)):
        raise EagerError(f"copies a {type(value).__name__}")
    if any(type_lookup(type(value), name) is not type_lookup(object, name) for name in _OF_COPIES):
        raise EagerError(f"copies a {type(value).__name__}, whose class says how")
    if any("__slots__" in vars(kind) and vars(kind)["__slots__"] for kind in type(value).__mro__):
        raise EagerError(f"copies a {type(value).__name__}, which has __slots__")
    call.guard_class(value)
    own = instance_dict(value)
    if own is not None and call.is_outer(value):
        call.checks.class_of(value, own)
        call.guard_whole(own)

    def told(answer: Any) -> None:
        for one in answer:
            if type(one) is dict and one is not own:
                call.make(one)

    return told


know(METHODS, _reduce, vars(object)["__reduce_ex__"])


def _variable(what: str) -> Rule:
    def rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
        call.use_variable(what, values[0])
        return call.make if what == "set" else None

    return rule


for _what in ("get", "set", "reset"):
    know(METHODS, _variable(_what), vars(contextvars.ContextVar)[_what])

del _what
