"""Rules of classes that are called: containers, iterators, numbers."""

from __future__ import annotations

import collections
import functools
import itertools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy
import torch

from torchreel.guards import operations, tensors
from torchreel.guards.eager import EagerError
from torchreel.guards.python_functions.arguments import PYTHON, is_followed, is_python, look_at
from torchreel.guards.python_functions.functions import len_rule, pure, text_rule
from torchreel.guards.python_functions.table import CLASSES, FUNCTIONS, METHODS, Told, know
from torchreel.guards.types_known import PLAIN, is_plain_to_the_bottom, is_python_class

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall


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
            operations.iterate(call, value)
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
    operations.iterate(call, value)
    if isinstance(value, (list, tuple, dict)) or type(value) in _VIEWS:
        for item in list(value):
            operations.iterate(call, item)
    elif isinstance(value, types.GeneratorType):
        call.readers[value.gi_code] = operations.iterate
    elif type(value) is map:
        _read_results(call, value.__reduce__()[1][0], operations.iterate)
    elif type(value) not in _PAIRS:
        raise EagerError(f"iterates the items of a {type(value).__name__}")


_MAPPINGS: tuple[dict[Any, Any], ...] = ({}, collections.OrderedDict())
_VIEWS = tuple(type(view()) for one in _MAPPINGS for view in (one.values, one.items))


def _read_results(call: FollowedCall, function: Any, reader: Callable[[FollowedCall, Any], object]) -> None:
    """C code does this to what a function of Python gives it."""
    if not is_python(function):
        raise EagerError("hands a function of C to map() or filter()")
    while isinstance(function, types.MethodType):
        function = function.__func__
    call.readers[function.__code__] = reader


def make_dict(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    for value in values:
        if isinstance(value, dict):
            operations.iterate(call, value)
        elif is_python_class(type(value)) and not isinstance(value, (list, tuple)):
            raise EagerError(f"makes a dict of a {type(value).__name__}")
        else:
            _iterate_items(call, value)
    return call.make


def _is_pure_over(values: list[Any]) -> bool:
    """map(ord, "text"), map(len, lists): what the function gets is in the containers, which are looked at."""
    if FUNCTIONS.get(id(values[0])) not in (pure, len_rule):
        return False
    return all(isinstance(value, (str, bytes, range, list, tuple, dict, set)) for value in values[1:])


def _make_with_function(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if keywords or (values and not is_followed(call, values[0]) and not _is_pure_over(values)):
        raise EagerError("hands a function of C to map() or filter()")
    for value in values[1:]:
        operations.iterate(call, value)
        if values and _is_pure_over(values):
            call.deep(value)
    return call.make


def _make_with_test(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Whether what the function gives is true is asked by C."""
    if values and values[0] is None:
        operations.iterate(call, values[1])
        look_at(call, values[1])
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
    if values and values[0] not in (None, list, dict, set, int, float) and not isinstance(values[0], PYTHON):
        raise EagerError("makes a defaultdict with a function of C")
    return make_dict(call, values[1:], keywords)


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
    dict: make_dict, collections.OrderedDict: make_dict,
    map: _make_with_function, filter: _make_with_test, itertools.takewhile: _make_with_test,
    itertools.dropwhile: _make_with_test, itertools.starmap: _make_starmap,
    int: _make_number, float: _make_number, complex: _make_number, bool: _make_bool, str: text_rule, bytes: text_rule,
})  # fmt: skip


def _chain_from_iterable(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    _iterate_items(call, values[-1])
    return call.make


know(METHODS, _chain_from_iterable, vars(itertools.chain)["from_iterable"])
