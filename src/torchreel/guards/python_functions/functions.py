"""Rules of functions: the builtins, math, operator, warnings."""

from __future__ import annotations

import abc
import cmath
import copy
import functools
import math
import operator
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

import torch

from torchreel._graphs import NULL, type_lookup
from torchreel.guards import attributes, operations, tensors, warnings_seen
from torchreel.guards.eager import EagerError
from torchreel.guards.python_functions.arguments import look_at, looks
from torchreel.guards.python_functions.table import FUNCTIONS, Told, know
from torchreel.guards.types_known import ATOMS, PLAIN, compares_by_identity, is_python_class

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall


def pure(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """The answer follows from the arguments, and nothing is changed."""
    everything = (*values, *keywords.values())
    if any(isinstance(value, torch.Tensor) for value in everything):
        looks(call)
        return tensors.run_op(call, values, keywords)  # sum(tensors), max(a, b): numbers and ops, which the tape sees
    looks(call)
    callbacks = [value for value in everything if FUNCTIONS.get(id(value)) in (pure, len_rule)]
    for value in everything:
        if not any(value is one for one in callbacks):
            look_at(call, value)
    if callbacks and any(type_lookup(type(value), "__next__") is not NULL for value in everything):
        return lambda result: _only_atoms(result)  # what an iterator gives to them is not seen: numbers, or nothing
    return None  # max(), reduce() and others may give what they were given


def _sum(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A sum of tensors is a new tensor. The sum of no tensors is the start value itself."""
    told = pure(call, values, keywords)

    def made(result: Any) -> None:
        if told is not None:
            told(result)
        if isinstance(result, torch.Tensor) and all(result is not one for one in (*values, *keywords.values())):
            call.make(result)

    return made


def _sorted(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    pure(call, values, keywords)
    return call.make


def _only_atoms(result: Any) -> None:
    if type(result) not in ATOMS:
        raise EagerError("hands a function of C to a function of C")


def text_rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Text of a value: only of plain ones, as others are asked for their address, or for anything."""
    for value in (*values, *keywords.values()):
        operations.read_text(call, value)
    return None


_OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "eq", "ne", "lt", "le", "gt", "ge",
    "and_", "or_", "xor", "not_", "truth", "index", "lshift", "rshift",
)  # fmt: skip
know(
    FUNCTIONS, pure, abs, all, any, bin, chr, divmod, hex, max, min, oct, ord, pow, round,
    functools.reduce, *(getattr(operator, name) for name in _OPERATORS),
    *(one for module in (math, cmath) for one in vars(module).values() if type(one) is types.BuiltinFunctionType),
)  # fmt: skip
know(FUNCTIONS, _sum, sum)
know(FUNCTIONS, _sorted, sorted)
know(FUNCTIONS, text_rule, ascii, repr, format, sys.intern)


def reads_nothing(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return None


know(FUNCTIONS, reads_nothing, sys.is_finalizing)


def _recursion_limit(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    call.checks.ask("sys.getrecursionlimit()", sys.getrecursionlimit, (), sys.getrecursionlimit())
    return None


know(FUNCTIONS, _recursion_limit, sys.getrecursionlimit)


def _callable(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if type(values[0]) not in PLAIN:
        call.guard_class(values[0])
    return None


know(FUNCTIONS, _callable, callable)


def _getattr(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if type(values[1]) is not str:
        raise EagerError("reads an attribute by a name that is no plain string")
    return attributes.read(call, values[0], values[1])


know(FUNCTIONS, _getattr, getattr, hasattr)


def _setattr(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    attributes.store(call, values[0], values[1], values[2])
    return None


know(FUNCTIONS, _setattr, setattr)


def _delattr(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    attributes.delete(call, values[0], values[1])
    return None


know(FUNCTIONS, _delattr, delattr)


def _guard_classes(call: FollowedCall, kinds: list[Any], asks: str) -> None:
    """The classes that are asked about, also those in tuples and unions: each with its metaclass."""
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, (tuple, types.UnionType)):
            kinds += kind if isinstance(kind, tuple) else kind.__args__
        elif isinstance(kind, type):
            call.guard_type(kind)
            call.guard_type(type(kind))
        elif not is_python_class(type(kind)):
            raise EagerError(f"asks {asks}() of a {type(kind).__name__}")


def isinstance_rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if type(values[0]) not in PLAIN:
        call.guard_class(values[0])
        found = type_lookup(type(values[0]), "__class__")
        followed = isinstance(found, property) and isinstance(found.fget, types.FunctionType)
        if found is not vars(object)["__class__"] and not followed:
            raise EagerError(f"asks isinstance() of a {type(values[0]).__name__}, whose __class__ is C code")
    kinds = list(values[1] if isinstance(values[1], tuple) else (values[1],))
    _guard_classes(call, kinds, "isinstance")
    return None


know(FUNCTIONS, isinstance_rule, isinstance)


def issubclass_rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    kinds = list(values)
    _guard_classes(call, kinds, "issubclass")
    return None


know(FUNCTIONS, issubclass_rule, issubclass)


def _abc_check(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Registered classes change the token; __subclasshook__ of Python is followed, and the cache is of no account."""
    token = abc.get_cache_token()
    call.checks.ask("abc.get_cache_token()", abc.get_cache_token, (), token)
    for kind in values:
        if isinstance(kind, type):
            call.guard_type(kind)
    return None


know(FUNCTIONS, _abc_check, vars(abc)["_abc_instancecheck"], vars(abc)["_abc_subclasscheck"])


def len_rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    value = values[0]
    if isinstance(value, torch.Tensor) or type(value) in PLAIN:
        return None  # Tensor.__len__ is Python
    if call.is_given(value):
        call.guard_type(type(value))
        return None
    known = is_python_class(type(value)) or isinstance(value, (list, dict, set, frozenset))
    if call.is_outer(value) and not known:
        raise EagerError(f"asks for the length of a {type(value).__name__}")
    if call.is_outer(value) and isinstance(value, (list, dict, set, frozenset, tuple)):
        call.guard_class(value)
        if not isinstance(type_lookup(type(value), "__len__"), types.FunctionType):
            call.guard_true(value)
        return None
    if call.is_outer(value):
        call.guard_class(value)
    return None


know(FUNCTIONS, len_rule, len)


def _iter(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if len(values) != 1:
        raise EagerError("calls iter() with a function")
    return operations.iterate(call, values[0])


know(FUNCTIONS, _iter, iter)


def _next(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    operations.advance(call, values[0])
    return None


know(FUNCTIONS, _next, next)
_HASH_OF_TENSORS = torch.Tensor.__hash__.__code__


def _id(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """id() of an object that is the same at each call. torch hashes and compares by id, which is followed too."""
    if call.frame.f_globals is vars(copy):
        return None  # the keys of a memo that is made for one copy
    if call.is_fresh(values[0]) and call.frame.f_code.co_qualname.startswith("ExactWeakKeyDictionary."):
        return None  # of torch: what the call made is not in it
    if call.frame.f_code is _HASH_OF_TENSORS and not call.is_given(values[0]):
        return None  # of a tensor that the call made: no two of them are one
    if not call.is_outer(values[0]):
        raise EagerError("asks for the id() of what is another object at each call")
    return None


know(FUNCTIONS, _id, id)


def hash_rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if not compares_by_identity(values[0]) and not is_python_class(type(values[0])):
        raise EagerError(f"asks for the hash of a {type(values[0]).__name__}")
    if type(values[0]) not in PLAIN and not call.is_outer(values[0]):
        raise EagerError("asks for the hash of what is another object at each call")
    if type(values[0]) not in PLAIN:
        call.guard_class(values[0])
    return None


know(FUNCTIONS, hash_rule, hash)


def identity_rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    operations.refuse_equal(*values)
    for one, other in (values, values[::-1]):
        if call.is_given(one) and call.is_given(other) and not isinstance(one, torch.Tensor):
            raise EagerError("asks whether two of its arguments are one")
        if isinstance(one, torch.Tensor):
            call.compare_identity(one, other)
        else:
            call.needs_identity(one, other)
    return None


know(FUNCTIONS, identity_rule, operator.is_, operator.is_not)


def _getitem(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return operations.read_item(call, values[0], values[1])


know(FUNCTIONS, _getitem, operator.getitem)


def _contains(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    operations.contains(call, values[0], values[1])
    return None


know(FUNCTIONS, _contains, operator.contains)


def _warn(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A warning that the filters ignore has no effect."""
    text, kind = values[0], (values[1] if len(values) > 1 else keywords.get("category")) or UserWarning
    level = (values[2] if len(values) > 2 else keywords.get("stacklevel", 1)) or 1
    frame = call.frame
    for _ in range(level - 1):
        frame = frame.f_back if frame is not None and frame.f_back is not None else frame
    names = frame.f_globals
    if type(text) is not str or not isinstance(kind, type):
        raise EagerError("warns")
    call.checks.class_of(warnings, vars(warnings))
    call.checks.entry(vars(warnings), "filters", warnings.filters, "warnings")
    call.guard_whole(warnings.filters)
    if warnings_seen.is_ignored(text, kind, names.get("__name__", ""), frame.f_lineno):
        return None
    raise EagerError("shows a warning, or would if it had not been shown before")


know(FUNCTIONS, _warn, warnings.warn)
