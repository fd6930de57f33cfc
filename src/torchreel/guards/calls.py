"""What a call of an object is: Python, which is followed, or C, which must be known."""

from __future__ import annotations

import functools
import types
import weakref
from inspect import CO_GENERATOR
from typing import TYPE_CHECKING, Any

import torch

from torchreel import _graphs
from torchreel._graphs import NULL, type_lookup
from torchreel._torch.c_functions import CONTEXT_MANAGERS
from torchreel.guards import python_functions, torch_functions
from torchreel.guards.eager import EagerError
from torchreel.guards.operations import Told, iterate
from torchreel.guards.types_known import BASES, PLAIN, is_python_class

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

_READS_WHEN_MADE = (tuple, frozenset, int, float, complex, str, bytes)  # by __new__, whatever __init__ does
_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def invoke(call: FollowedCall, function: Any, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A call is about to happen. Gives what to tell its result to, or nothing."""
    kind = type(function)
    if kind is types.FunctionType:
        return call.make if function.__code__.co_flags & CO_GENERATOR else None
    if kind is types.MethodType:
        return invoke(call, function.__func__, [function.__self__, *values], keywords)
    if isinstance(function, type):
        return _construct(call, function, values, keywords)
    if kind is types.BuiltinFunctionType:
        return _invoke_builtin(call, function, values, keywords)
    if kind in _DESCRIPTORS:
        return _invoke_method(call, function, values, keywords)
    if kind is types.MethodWrapperType:
        found = vars(function.__objclass__).get(function.__name__)
        return _invoke_method(call, found, [function.__self__, *values], keywords)
    if kind is functools.partial:
        return _invoke_partial(call, function, values, keywords)
    if kind is weakref.ref:
        if call.is_outer(function):
            call.checks.reference(function)
        return None
    if isinstance(function, _graphs.CachedCall):
        return None  # a graphed function within another one runs its function, which is followed
    rule = torch_functions.rule_of_object(function) or python_functions.rule_of_object(function)
    if rule is not None:
        return rule(call, values, keywords)
    if is_python_class(kind) or isinstance(function, torch.nn.Module):
        call.guard_class(function)
        found = type_lookup(kind, "__call__")
        if isinstance(found, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
            return invoke(call, found, [function, *values] if type(found) is types.FunctionType else values, keywords)
    raise EagerError(f"calls {_name(function)}, which is not known")


def _name(function: Any) -> str:
    kind = type(function)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    module = getattr(function, "__module__", None)
    if type(name) is str:
        return f"{module}.{name}()" if type(module) is str and module else f"{name}()"
    return f"a {kind.__module__}.{kind.__qualname__}"


def _invoke_builtin(call: FollowedCall, function: Any, values: list[Any], keywords: dict[str, Any]) -> Told:
    rule = python_functions.FUNCTIONS.get(id(function)) or torch_functions.rule_of(function)
    if rule is not None:
        return rule(call, values, keywords)
    owner = function.__self__
    if owner is None or isinstance(owner, types.ModuleType):
        raise EagerError(f"calls {_name(function)}, which is not known")
    if isinstance(owner, type) and function.__name__ == "__new__":
        if owner is type:
            raise EagerError("makes a class")
        if owner in _READS_WHEN_MADE:
            return python_functions.CLASSES[owner](call, values[1:], keywords) or call.make
        if owner in BASES or owner in PLAIN or issubclass(owner, BaseException):
            return call.make
        raise EagerError(f"makes a {owner.__qualname__}")
    found = _descriptor_of(function, owner)
    if found is not None:
        return _invoke_method(call, found, [owner, *values], keywords)
    raise EagerError(f"calls {_name(function)}, which is not known")


def _descriptor_of(function: Any, owner: Any) -> Any:
    """The C method behind a bound method, found among the bases of its object's class."""
    kinds = type.__dict__["__mro__"].__get__(type(owner))
    if isinstance(owner, type):
        kinds = (*type.__dict__["__mro__"].__get__(owner), *kinds)
    for kind in kinds:
        found = type.__dict__["__dict__"].__get__(kind).get(function.__name__)
        if isinstance(found, types.ClassMethodDescriptorType) and isinstance(owner, type):
            return found
        is_method = isinstance(found, types.MethodDescriptorType) and isinstance(owner, found.__objclass__)
        if is_method and found.__get__(owner) == function:
            return found
    return None


def _invoke_method(call: FollowedCall, method: Any, values: list[Any], keywords: dict[str, Any]) -> Told:
    rule = python_functions.METHODS.get(id(method)) or torch_functions.METHODS.get(id(method))
    if rule is None:
        raise EagerError(f"calls {method.__objclass__.__module__}.{method.__qualname__}(), which is not known")
    return rule(call, values, keywords)


def _invoke_partial(call: FollowedCall, function: Any, values: list[Any], keywords: dict[str, Any]) -> Told:
    if call.is_outer(function):
        for name in ("func", "args", "keywords"):
            call.checks.member(function, functools.partial.__dict__[name], getattr(function, name))
        call.guard_whole(function.keywords)
    return invoke(call, function.func, [*function.args, *values], {**function.keywords, **keywords})


def _construct(call: FollowedCall, kind: type, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A class is called."""
    rule = python_functions.CLASSES.get(kind) or torch_functions.CLASSES.get(kind)
    if rule is not None:
        return rule(call, values, keywords)
    call.guard_type(kind)
    call.guard_type(type(kind))
    caller = type_lookup(type(kind), "__call__")
    if isinstance(caller, types.FunctionType):
        return None  # a metaclass of Python, which is followed
    if caller is not type_lookup(type, "__call__"):
        raise EagerError(f"makes a {kind.__module__}.{kind.__qualname__}")
    if issubclass(kind, BaseException) and not is_python_class(kind):
        return call.make
    if not is_python_class(kind) and not _is_torch_class(kind):
        raise EagerError(f"makes a {kind.__module__}.{kind.__qualname__}")
    new = type_lookup(kind, "__new__")
    if isinstance(new, types.BuiltinFunctionType):
        if type_lookup(kind, "__del__") is not NULL:
            raise EagerError(f"makes a {kind.__qualname__}, which has a finalizer")
        start = type_lookup(kind, "__init__")
        for base in _READS_WHEN_MADE:
            if issubclass(kind, base):
                python_functions.CLASSES[base](call, values, keywords)
        if isinstance(start, types.FunctionType):
            call.native.expect(kind)
        elif issubclass(kind, dict):
            python_functions.CLASSES[dict](call, values, keywords)
        elif not issubclass(kind, (BaseException, *_READS_WHEN_MADE)):
            for value in (*values, *keywords.values()):
                iterate(call, value)
        return call.make
    return None  # __new__ is Python, and followed


def _is_torch_class(kind: type) -> bool:
    """A Python class above one of torch's C classes that hold nothing of others."""
    bases = type.__dict__["__mro__"].__get__(kind)
    return all(is_python_class(base) or base in BASES or base in CONTEXT_MANAGERS for base in bases)
