"""C functions of Python itself that are known: what they read, whether they change anything, and what they make.

This is a trusted base: a function that is not here is not known, and a call of it makes a function run eagerly. Each is
matched by the object itself. A rule looks at all arguments, by position and by keyword, callbacks included.
"""

from __future__ import annotations

import abc
import cmath
import collections
import contextvars
import copy
import functools
import itertools
import math
import operator
import sys
import types
import typing
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy
import torch

from torchreel._cpython.interpreter import CachedFunction
from torchreel._graphs import NULL, instance_dict, type_lookup
from torchreel.guards import attributes, opcodes, tensors, warnings_seen
from torchreel.guards.eager import EagerError, WriteError
from torchreel.guards.types_known import (
    ATOMS,
    PLAIN,
    compares_by_identity,
    is_plain_to_the_bottom,
    is_python_class,
)

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

Told = Callable[[Any], object] | None
Rule = Callable[["FollowedCall", list[Any], dict[str, Any]], Told]

FUNCTIONS: dict[int, Rule] = {}  # by the id of a function of C
METHODS: dict[int, Rule] = {}  # by the id of a descriptor
CLASSES: dict[Any, Rule] = {}
_kept: list[Any] = []  # so that the ids stay theirs
_PYTHON = (types.FunctionType, types.MethodType)


def _know(table: dict[int, Rule], rule: Rule, *objects: Any) -> None:
    for one in objects:
        _kept.append(one)
        table[id(one)] = rule


def _is_python(function: Any) -> bool:
    """Whether what C code does when it calls this is followed."""
    while isinstance(function, types.MethodType):
        function = function.__func__
    return isinstance(function, types.FunctionType)


def _is_callback(value: Any) -> bool:
    """Whether C code that is given this can call it and nothing is seen of that."""
    if isinstance(value, type) or not callable(value) or _is_python(value):
        return False
    return not (is_python_class(type(value)) and _is_python(type_lookup(type(value), "__call__")))


def _is_followed(call: FollowedCall, function: Any) -> bool:
    """Whether a call of it only runs Python, which is followed."""
    if type(function) is functools.partial:
        if call.is_outer(function):
            for name in ("func", "args", "keywords"):
                call.checks.member(function, functools.partial.__dict__[name], getattr(function, name))
            call.guard_whole(function.keywords)
        return _is_followed(call, function.func)
    if is_python_class(type(function)) and _is_python(type_lookup(type(function), "__call__")):
        call.guard_class(function)
        return True
    return _is_python(function)


def _look_at(call: FollowedCall, value: Any) -> None:
    """An argument of a pure function: iterated, or looked at as a whole; a function of Python is followed."""
    if isinstance(value, torch.Tensor):
        tensors.bind(call, value)
    elif type_lookup(type(value), "__next__") is not NULL:
        opcodes.iterate(call, value)
        _look_inside(call, value)
    elif _is_python(value):
        pass
    elif isinstance(value, (set, frozenset)) and not call.is_outer(value):
        opcodes.iterate(call, value)  # its order may show
        call.deep(value)
    elif isinstance(value, type) and value not in PLAIN:
        raise EagerError("hands a class to a function of C")
    elif _is_callback(value):
        raise EagerError("hands a function of C to a function of C")
    else:
        call.deep(value)


_GIVES_BACK = (map, types.GeneratorType, itertools.starmap)  # what Python hands to them is seen when it does


def _look_inside(call: FollowedCall, iterator: Any) -> None:
    """The items that an iterator of C has still to give, which C code looks at."""
    if isinstance(iterator, _GIVES_BACK) or is_python_class(type(iterator)):
        return
    if type(iterator).__module__ not in ("builtins", "itertools", "collections"):
        raise EagerError(f"hands a {type(iterator).__name__} to a function of C")
    todo = list(iterator.__reduce__())
    while todo:
        part = todo.pop()
        if type_lookup(type(part), "__next__") is not NULL:
            _look_inside(call, part)
        elif type(part) is tuple:
            todo.extend(part)
        elif not callable(part):
            call.deep(part)


def _looks(call: FollowedCall) -> None:
    """From now on, what Python hands back to the C code that is called here is looked at."""
    if call.frame is not None:
        call.looking[id(call.frame)] = call.frame.f_lasti


def _pure(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """The answer follows from the arguments, and nothing is changed."""
    everything = (*values, *keywords.values())
    if any(isinstance(value, torch.Tensor) for value in everything):
        _looks(call)
        return tensors.run_op(call, values, keywords)  # sum(tensors), max(a, b): numbers and ops, which the tape sees
    _looks(call)
    callbacks = [value for value in everything if FUNCTIONS.get(id(value)) in (_pure, _len)]
    for value in everything:
        if not any(value is one for one in callbacks):
            _look_at(call, value)
    if callbacks and any(type_lookup(type(value), "__next__") is not NULL for value in everything):
        return lambda result: _only_atoms(result)  # what an iterator gives to them is not seen: numbers, or nothing
    return None  # max(), reduce() and others may give what they were given


def _sum(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A sum of tensors is a new tensor. The sum of no tensors is the start value itself."""
    told = _pure(call, values, keywords)

    def made(result: Any) -> None:
        if told is not None:
            told(result)
        if isinstance(result, torch.Tensor) and all(result is not one for one in (*values, *keywords.values())):
            call.make(result)

    return made


def _sorted(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    _pure(call, values, keywords)
    return call.make


def _only_atoms(result: Any) -> None:
    if type(result) not in ATOMS:
        raise EagerError("hands a function of C to a function of C")


def _text(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Text of a value: only of plain ones, as others are asked for their address, or for anything."""
    for value in (*values, *keywords.values()):
        opcodes.read_text(call, value)
    return None


_OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "eq", "ne", "lt", "le", "gt", "ge",
    "and_", "or_", "xor", "not_", "truth", "index", "lshift", "rshift",
)  # fmt: skip
_know(
    FUNCTIONS, _pure, abs, all, any, bin, chr, divmod, hex, max, min, oct, ord, pow, round,
    functools.reduce, *(getattr(operator, name) for name in _OPERATORS),
    *(one for module in (math, cmath) for one in vars(module).values() if type(one) is types.BuiltinFunctionType),
)  # fmt: skip
_know(FUNCTIONS, _sum, sum)
_know(FUNCTIONS, _sorted, sorted)
_know(FUNCTIONS, _text, ascii, repr, format, sys.intern)


def _nothing(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return None


_know(FUNCTIONS, _nothing, sys.is_finalizing)


def _recursion_limit(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    call.checks.ask("sys.getrecursionlimit()", sys.getrecursionlimit, (), sys.getrecursionlimit())
    return None


_know(FUNCTIONS, _recursion_limit, sys.getrecursionlimit)


def _callable(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if type(values[0]) not in PLAIN:
        call.guard_class(values[0])
    return None


_know(FUNCTIONS, _callable, callable)


def _getattr(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if type(values[1]) is not str:
        raise EagerError("reads an attribute by a name that is no plain string")
    return attributes.read(call, values[0], values[1])


_know(FUNCTIONS, _getattr, getattr, hasattr)


def _setattr(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    attributes.store(call, values[0], values[1], values[2])
    return None


_know(FUNCTIONS, _setattr, setattr)


def _delattr(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    attributes.delete(call, values[0], values[1])
    return None


_know(FUNCTIONS, _delattr, delattr)


def _isinstance(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if type(values[0]) not in PLAIN:
        call.guard_class(values[0])
        found = type_lookup(type(values[0]), "__class__")
        followed = isinstance(found, property) and isinstance(found.fget, types.FunctionType)
        if found is not vars(object)["__class__"] and not followed:
            raise EagerError(f"asks isinstance() of a {type(values[0]).__name__}, whose __class__ is C code")
    kinds = list(values[1] if isinstance(values[1], tuple) else (values[1],))
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, (tuple, types.UnionType)):
            kinds += kind if isinstance(kind, tuple) else kind.__args__
        elif isinstance(kind, type):
            call.guard_type(kind)
            call.guard_type(type(kind))
        elif not is_python_class(type(kind)):
            raise EagerError(f"asks isinstance() of a {type(kind).__name__}")
    return None


_know(FUNCTIONS, _isinstance, isinstance)


def _issubclass(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    kinds = list(values)
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, (tuple, types.UnionType)):
            kinds += kind if isinstance(kind, tuple) else kind.__args__
        elif isinstance(kind, type):
            call.guard_type(kind)
            call.guard_type(type(kind))
        elif not is_python_class(type(kind)):
            raise EagerError(f"asks issubclass() of a {type(kind).__name__}")
    return None


_know(FUNCTIONS, _issubclass, issubclass)


def _abc_check(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Registered classes change the token; __subclasshook__ of Python is followed, and the cache is of no account."""
    token = abc.get_cache_token()
    call.checks.ask("abc.get_cache_token()", abc.get_cache_token, (), token)
    for kind in values:
        if isinstance(kind, type):
            call.guard_type(kind)
    return None


_know(FUNCTIONS, _abc_check, vars(abc)["_abc_instancecheck"], vars(abc)["_abc_subclasscheck"])


def _len(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
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


_know(FUNCTIONS, _len, len)


def _iter(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if len(values) != 1:
        raise EagerError("calls iter() with a function")
    return opcodes.iterate(call, values[0])


_know(FUNCTIONS, _iter, iter)


def _next(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    opcodes.advance(call, values[0])
    return None


_know(FUNCTIONS, _next, next)


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


_know(FUNCTIONS, _id, id)


def _hash(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if not compares_by_identity(values[0]) and not is_python_class(type(values[0])):
        raise EagerError(f"asks for the hash of a {type(values[0]).__name__}")
    if type(values[0]) not in PLAIN and not call.is_outer(values[0]):
        raise EagerError("asks for the hash of what is another object at each call")
    if type(values[0]) not in PLAIN:
        call.guard_class(values[0])
    return None


_know(FUNCTIONS, _hash, hash)


def _is_identity(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    opcodes.refuse_equal(*values)
    for one, other in (values, values[::-1]):
        if call.is_given(one) and call.is_given(other) and not isinstance(one, torch.Tensor):
            raise EagerError("asks whether two of its arguments are one")
        if isinstance(one, torch.Tensor):
            call.compare_identity(one, other)
        else:
            call.needs_identity(one, other)
    return None


_know(FUNCTIONS, _is_identity, operator.is_, operator.is_not)


def _getitem(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return opcodes.read_item(call, values[0], values[1])


_know(FUNCTIONS, _getitem, operator.getitem)


def _contains(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    opcodes.contains(call, values[0], values[1])
    return None


_know(FUNCTIONS, _contains, operator.contains)


# Classes


def _type(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if len(values) != 1:
        raise EagerError("makes a class")
    if type(values[0]) not in PLAIN:
        call.guard_class(values[0])
    return None


def _make_bare(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Holds its arguments, and asks them nothing."""
    return call.make


def _make_of_iterable(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    for value in (*values, *keywords.values()):
        if not isinstance(value, int):
            opcodes.iterate(call, value)
    return call.make


def _make_set(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    for value in values:
        for key in value if isinstance(value, (list, tuple, set, frozenset, dict)) else ():
            call.check_key(key)
    return _make_of_iterable(call, values, keywords)


_REVERSED = (list, tuple, dict, str, bytes, range, collections.OrderedDict, collections.deque)


def _make_reversed(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if type(values[0]) not in _REVERSED:
        raise EagerError(f"reverses a {type(values[0]).__name__}, whose class may give any iterator")
    return _make_of_iterable(call, values, keywords)


_PAIRS = (zip, enumerate, itertools.product, itertools.combinations, itertools.permutations, itertools.pairwise)


def _iterate_items(call: FollowedCall, value: Any) -> None:
    """C code iterates, and iterates each item in its turn."""
    opcodes.iterate(call, value)
    if isinstance(value, (list, tuple, dict)) or type(value) in _VIEWS:
        for item in list(value):
            opcodes.iterate(call, item)
    elif isinstance(value, types.GeneratorType):
        call.readers[value.gi_code] = opcodes.iterate
    elif type(value) is map:
        _read_results(call, value.__reduce__()[1][0], opcodes.iterate)
    elif type(value) not in _PAIRS:
        raise EagerError(f"iterates the items of a {type(value).__name__}")


_MAPPINGS: tuple[dict[Any, Any], ...] = ({}, collections.OrderedDict())
_VIEWS = tuple(type(view()) for one in _MAPPINGS for view in (one.values, one.items))


def _read_results(call: FollowedCall, function: Any, reader: Callable[[FollowedCall, Any], object]) -> None:
    """C code does this to what a function of Python gives it."""
    if not _is_python(function):
        raise EagerError("hands a function of C to map() or filter()")
    while isinstance(function, types.MethodType):
        function = function.__func__
    call.readers[function.__code__] = reader


def _make_dict(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    for value in values:
        if isinstance(value, dict):
            opcodes.iterate(call, value)
        elif is_python_class(type(value)) and not isinstance(value, (list, tuple)):
            raise EagerError(f"makes a dict of a {type(value).__name__}")
        else:
            _iterate_items(call, value)
    return call.make


def _is_pure_over(values: list[Any]) -> bool:
    """map(ord, "text"), map(len, lists): what the function gets is in the containers, which are looked at."""
    if FUNCTIONS.get(id(values[0])) not in (_pure, _len):
        return False
    return all(isinstance(value, (str, bytes, range, list, tuple, dict, set)) for value in values[1:])


def _make_with_function(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if keywords or (values and not _is_followed(call, values[0]) and not _is_pure_over(values)):
        raise EagerError("hands a function of C to map() or filter()")
    for value in values[1:]:
        opcodes.iterate(call, value)
        if values and _is_pure_over(values):
            call.deep(value)
    return call.make


def _make_with_test(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Whether what the function gives is true is asked by C."""
    if values and values[0] is None:
        opcodes.iterate(call, values[1])
        _look_at(call, values[1])
        if isinstance(values[1], (map, types.GeneratorType)):
            raise EagerError("filters what a function gives by whether it is true")
        return call.make
    _read_results(call, values[0], type(call).guard_true)
    return _make_with_function(call, values, keywords)


def _make_starmap(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    _iterate_items(call, values[1])
    return _make_with_function(call, values, keywords)


_DIGITS = 640  # so many are always converted; of more, sys.set_int_max_str_digits() decides


def _make_number(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    for value in (*values, *keywords.values()):
        if isinstance(value, (str, bytes)) and len(value) > _DIGITS:
            raise EagerError("reads a number of very many digits")
        if isinstance(value, torch.Tensor):
            tensors.read_number(call, value)
        elif isinstance(value, numpy.generic):
            pass
        elif is_python_class(type(value)) and not isinstance(value, (int, float, str)):
            call.guard_class(value)  # __int__ and __float__ are followed
        elif not is_plain_to_the_bottom(value):
            raise EagerError(f"makes a number of a {type(value).__name__}")
    return None


def _make_bool(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    for value in values:
        call.guard_true(value)
    return None


def _make_partial(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return call.make


def _make_proxy(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if keywords or not call.is_fresh(values[0]):
        raise EagerError("makes a mappingproxy of what was made before the call")
    return call.make


def _make_default_dict(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if values and values[0] not in (None, list, dict, set, int, float) and not isinstance(values[0], _PYTHON):
        raise EagerError("makes a defaultdict with a function of C")
    return _make_dict(call, values[1:], keywords)


CLASSES.update({
    type: _type,
    super: _make_bare, object: _make_bare, types.MethodType: _make_bare, staticmethod: _make_bare,
    classmethod: _make_bare, property: _make_bare, types.SimpleNamespace: _make_bare, slice: _make_bare,
    functools.partial: _make_partial, types.MappingProxyType: _make_proxy, collections.defaultdict: _make_default_dict,
    list: _make_of_iterable, tuple: _make_of_iterable, set: _make_set, frozenset: _make_set,
    enumerate: _make_of_iterable, zip: _make_of_iterable, reversed: _make_reversed, range: _make_number,
    collections.deque: _make_of_iterable, itertools.chain: _make_of_iterable, itertools.islice: _make_of_iterable,
    itertools.product: _make_of_iterable, itertools.count: _make_number, itertools.zip_longest: _make_of_iterable,
    itertools.repeat: _make_bare, itertools.pairwise: _make_of_iterable, itertools.combinations: _make_of_iterable,
    itertools.permutations: _make_of_iterable, itertools.cycle: _make_of_iterable,
    dict: _make_dict, collections.OrderedDict: _make_dict,
    map: _make_with_function, filter: _make_with_test, itertools.takewhile: _make_with_test,
    itertools.dropwhile: _make_with_test, itertools.starmap: _make_starmap,
    int: _make_number, float: _make_number, complex: _make_number, bool: _make_bool, str: _text, bytes: _text,
})  # fmt: skip


def _chain_from_iterable(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    _iterate_items(call, values[-1])
    return call.make


_know(METHODS, _chain_from_iterable, vars(itertools.chain)["from_iterable"])


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


_know(FUNCTIONS, _warn, warnings.warn)


# Methods


def _methods_of(kind: type, *names: str) -> list[Any]:
    return [vars(kind)[name] for name in names if name in vars(kind)]


def _all_methods_of(kind: type) -> list[Any]:
    known = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
    return [one for one in vars(kind).values() if isinstance(one, known)]


# They enter a mode, or tell equal ranges apart.
_NOT_OF_VALUE = {(torch.device, name) for name in ("__enter__", "__exit__", "__call__")} | {
    (range, name) for name in ("__repr__", "__reduce__", "__getattribute__")
}


def _of_plain(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A method of a number or a string."""
    for value in (*(values if isinstance(values[0], slice) else values[1:]), *keywords.values()):
        if not is_plain_to_the_bottom(value):
            raise EagerError(f"hands a {type(value).__name__} to a method of a plain value")
    return None


for _kind in (str, bytes, int, float, complex, bool, range, slice, type(None), torch.dtype, torch.device,
              types.GenericAlias, torch.Size):  # fmt: skip
    _know(METHODS, _of_plain, *(one for one in _all_methods_of(_kind) if (_kind, one.__name__) not in _NOT_OF_VALUE))


def _join(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    opcodes.iterate(call, values[1])
    if isinstance(values[0], bytes):  # which takes bytearrays, too
        call.deep(values[1])
        _look_at(call, values[1])
    return None


_know(METHODS, _join, str.join, bytes.join)


def _of_tuple(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    opcodes.refuse_tensors_in(*values)
    if any(isinstance(value, torch.Tensor) for value in values[1:]):
        raise EagerError("looks for a tensor in a tuple, which compares numbers")
    for value in values[1:]:
        call.deep(value)
    call.deep(values[0])
    return None


_know(METHODS, _of_tuple, *_methods_of(tuple, "index", "count", "__eq__", "__ne__", "__lt__", "__hash__", "__add__"))


def _item_of_tuple(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return opcodes.read_item(call, values[0], values[1])


_know(METHODS, _item_of_tuple, *_methods_of(tuple, "__getitem__"))


def _length(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """tuple.__len__, list.__len__: what a class of Python calls with super()."""
    if call.is_outer(values[0]) and not isinstance(values[0], tuple):
        call.checks.length(values[0])
        call.guard_class(values[0])
    return None


_know(METHODS, _length, *(vars(kind)["__len__"] for kind in (tuple, list, dict, set, frozenset)))


def _iterator(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    value = values[0]
    if call.is_outer(value) and not isinstance(value, tuple):
        call.checks.whole(value)
        call.guard_class(value)
    return call.make


_know(METHODS, _iterator, *(vars(kind)["__iter__"] for kind in (tuple, list, dict, collections.OrderedDict)),
      *_methods_of(list, "__reversed__"), *_methods_of(dict, "__reversed__"))  # fmt: skip


def _read_whole(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A method that reads all of a container; other containers that it is given are read as well."""
    if call.is_outer(values[0]):
        call.checks.whole(values[0])
        call.guard_class(values[0])
    for value in (*values[1:], *keywords.values()):
        _look_at(call, value)
    return call.make


def _compare_whole(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A method that compares what a container holds, to the bottom."""
    _read_whole(call, values, keywords)
    call.deep(values[0])
    if any(isinstance(one, torch.Tensor) for one in (*tensors.tensors_in(values[0]), *values[1:])):
        raise EagerError("looks for a tensor in a container, which compares numbers")
    return None


_know(METHODS, _compare_whole, *_methods_of(list, "index", "count", "__contains__", "__eq__", "__ne__"),
      *_methods_of(dict, "__eq__", "__ne__"), *_methods_of(collections.OrderedDict, "__eq__"))  # fmt: skip
_know(
    METHODS, _read_whole,
    *_methods_of(list, "copy", "__mul__", "__add__", "__rmul__"),
    *_methods_of(dict, "keys", "values", "items", "copy", "__or__"),
    *_methods_of(collections.OrderedDict, "keys", "values", "items", "copy"),
    *_methods_of(set, "copy", "union", "intersection", "difference", "issubset", "issuperset", "isdisjoint",
                 "symmetric_difference", "__contains__", "__or__", "__and__", "__sub__", "__eq__"),
    *_methods_of(frozenset, "copy", "union", "intersection", "difference", "issubset", "issuperset", "isdisjoint",
                 "__contains__", "__or__", "__and__", "__sub__", "__eq__"),
)  # fmt: skip


def _list_item(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return opcodes.read_item(call, values[0], values[1])


_know(METHODS, _list_item, *_methods_of(list, "__getitem__"))


def _dict_get(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """dict.get, dict.__getitem__, dict.__contains__, of the dict itself whatever its class says."""
    holder, key = values[0], values[1]
    call.check_key(key)
    if call.is_given(holder):
        call.guard_type(type(holder))
    if call.is_outer(holder):
        call.needs_identity(key, holder)
        if not compares_by_identity(key):
            raise EagerError(f"looks up a {type(key).__name__}, whose class decides what is equal")
        call.guard_class(holder)
        found = dict.get(holder, key, NULL)
        if found is NULL and len(values) == 2 and isinstance(holder, collections.defaultdict):
            raise EagerError("may have a defaultdict make an item")
        call.guard_entry(holder, key, found)
    return None


_know(METHODS, _dict_get, *_methods_of(dict, "get", "__getitem__", "__contains__"))


def _dict_setdefault(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if call.is_outer(values[0]):
        _dict_get(call, values, keywords)
        if not dict.__contains__(values[0], values[1]):
            raise WriteError("adds to a dict that was made before the call")
    elif call.is_given(values[0]):
        raise WriteError("writes to one of its arguments")
    return None


_know(METHODS, _dict_setdefault, *_methods_of(dict, "setdefault"), *_methods_of(collections.OrderedDict, "setdefault"))


def _change(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A method that changes its object: only what the call made may be changed."""
    if not call.is_fresh(values[0]):
        kind = "one of its arguments" if call.is_given(values[0]) else "what was made before the call"
        raise WriteError(f"changes a {type(values[0]).__name__}, which is {kind}")
    return None


def _append(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if call.writes is None or type(values[0]) is not list or not call.is_outer(values[0]) or len(values) != 2:
        return _change(call, values, keywords)
    call.writes.append(values[0], values[1])
    return None


def _change_by_iterable(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    _change(call, values, keywords)
    for value in values[1:]:
        opcodes.iterate(call, value)
    return None


def _change_by_pairs(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    _change(call, values, keywords)
    _make_dict(call, values[1:], keywords)
    return None


def _set_item(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    _change(call, values, keywords)
    if isinstance(values[1], slice):
        opcodes.iterate(call, values[2])
    return None


def _sort(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    _change(call, values, keywords)
    _looks(call)
    for value in (*values, *keywords.values()):
        _look_at(call, value)
    return None


def _change_set(adds: bool) -> Rule:
    """set.add or set.discard: of a set of others only where that changes nothing."""

    def rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
        holder = values[0]
        known = type(holder) is set and len(values) == 2 and type(values[1]) in ATOMS
        if known and call.is_outer(holder) and (values[1] in holder) is adds:
            call.guard_whole(holder)
            return None
        return _change_and_give(call, values, keywords)

    return rule


def _change_and_give(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    _change(call, values, keywords)
    for value in values[1:]:
        call.deep(value)
        if isinstance(values[0], list):
            opcodes.refuse_tensors_in(*values[:1])
        else:
            call.check_key(value)
    return None


_know(METHODS, _append, *_methods_of(list, "append"))
_know(METHODS, _change, *_methods_of(list, "insert", "clear", "reverse", "__delitem__"),
      *_methods_of(dict, "clear", "__setitem__", "__delitem__", "popitem"), *_methods_of(set, "clear"),
      *_methods_of(collections.OrderedDict, "move_to_end", "clear", "__setitem__", "__delitem__", "popitem"),
      *_methods_of(collections.deque, "append", "appendleft", "clear", "pop", "popleft", "reverse", "rotate"),
      )  # fmt: skip
_know(METHODS, _change_by_iterable, *_methods_of(list, "extend", "__iadd__", "__init__"),
      *_methods_of(set, "update", "__init__", "difference_update", "intersection_update"),
      *_methods_of(collections.deque, "extend", "extendleft"))  # fmt: skip
_know(METHODS, _change_and_give, *_methods_of(list, "pop", "remove"), *_methods_of(dict, "pop"),
      *_methods_of(set, "remove"), *_methods_of(collections.OrderedDict, "pop"))  # fmt: skip
_know(METHODS, _change_set(adds=True), *_methods_of(set, "add"))
_know(METHODS, _change_set(adds=False), *_methods_of(set, "discard"))
_know(METHODS, _change_by_pairs, *_methods_of(dict, "update", "__ior__", "__init__"),
      *_methods_of(collections.OrderedDict, "update", "__init__"))  # fmt: skip
_know(METHODS, _set_item, *_methods_of(list, "__setitem__"))
_know(METHODS, _sort, *_methods_of(list, "sort"))
# pop() of a set gives whichever comes first: not known.

_FRESH_ONLY = [*_methods_of(types.GeneratorType, "__iter__", "__next__", "send", "throw", "close", "__getattribute__"),
               *_methods_of(types.SimpleNamespace, "__init__", "__getattribute__"),
               *_methods_of(types.MappingProxyType, "get", "keys", "values", "items", "copy", "__getitem__",
                            "__contains__", "__len__", "__iter__")]  # fmt: skip


def _of_fresh(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if not call.is_fresh(values[0]):
        raise EagerError(f"uses a {type(values[0]).__name__} that was made before the call")
    return call.make if isinstance(values[0], types.MappingProxyType) else None


_know(METHODS, _of_fresh, *_FRESH_ONLY)


def _of_exception(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return _change(call, values, keywords)


_know(METHODS, _of_exception, *_methods_of(BaseException, "__init__", "with_traceback", "add_note"))


def _bind(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """function.__get__(instance, owner): a new method, which holds both and asks neither."""
    return call.make if len(values) > 1 and values[1] is not None else None


_know(METHODS, _bind, vars(types.FunctionType)["__get__"])


# object and type, which Python's classes call with super()


def _object_setattr(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    attributes.store(call, values[0], values[1], values[2], by_object=True)
    return None


def _object_getattribute(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return attributes.read(call, values[0], values[1])


def _object_delattr(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    attributes.delete(call, values[0], values[1])
    return None


_know(METHODS, _object_setattr, vars(object)["__setattr__"])
_know(METHODS, _object_getattribute, *(vars(kind)["__getattribute__"] for kind in (object, types.ModuleType, type)))
_know(METHODS, _object_delattr, vars(object)["__delattr__"])
_know(METHODS, _nothing, *_methods_of(object, "__init__", "__init_subclass__", "__ne__"),
      *_methods_of(type, "mro"))  # fmt: skip
_know(METHODS, _hash, vars(object)["__hash__"])
_know(METHODS, _is_identity, vars(object)["__eq__"])


def _object_format(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return _text(call, values[:1], {})


def _type_check(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """type.__instancecheck__, type.__subclasscheck__."""
    check = _issubclass if isinstance(values[1], type) else _isinstance
    return check(call, [values[1], values[0]], keywords)


_know(METHODS, _object_format, vars(object)["__format__"])
_know(METHODS, _type_check, *_methods_of(type, "__instancecheck__", "__subclasscheck__"))


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


_know(METHODS, _reduce, vars(object)["__reduce_ex__"])


def _variable(what: str) -> Rule:
    def rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
        call.use_variable(what, values[0])
        return call.make if what == "set" else None

    return rule


for _what in ("get", "set", "reset"):
    _know(METHODS, _variable(_what), vars(contextvars.ContextVar)[_what])


def cache_state(function: Any) -> tuple[int, int]:
    """Equal as long as nothing was added to the cache or removed from it."""
    info = function.cache_info()
    return info.misses, info.currsize


def _cached(function: Any) -> Rule:
    """functools.lru_cache: what is in the cache is given again, whatever its function would read now."""

    def rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
        for value in (*values, *keywords.values()):
            if not compares_by_identity(value) or call.is_given(value):
                raise EagerError(f"looks up a {type(value).__name__} in the cache of {function.__qualname__}()")
        before = cache_state(function)
        call.checks.ask(f"{function.__qualname__}.cache_info()", cache_state, (function,), before)
        again = functools.partial(function, *values, **keywords)  # a hit, which eager calls have as well
        # A miss changes the state, so that the guards do not hold when the call ends.
        return lambda answer: call.checks.ask(f"{function.__qualname__}()", again, (), answer)

    return rule


def _is_of_typing(function: Any) -> bool:
    """A cache of the module typing: what it makes of types reads nothing that changes."""
    wrapped = getattr(function, "__wrapped__", None)
    return type(wrapped) is types.FunctionType and wrapped.__globals__ is vars(typing)


def rule_of_object(function: Any) -> Rule | None:
    if type(function) is CachedFunction and _is_of_typing(function):
        return _nothing
    return _cached(function) if type(function) is CachedFunction else None


del _kind, _what
