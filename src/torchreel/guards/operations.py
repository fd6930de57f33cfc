"""What Python's operations read and change, by an opcode or by a function of C: items, operators, iteration, text.

A function here guards what an operation reads. It gives what to tell the result to, or nothing.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from inspect import CO_GENERATOR
from typing import TYPE_CHECKING, Any

import numpy
import torch

from torchreel._graphs import NULL, type_lookup
from torchreel.guards import tensors
from torchreel.guards.eager import EagerError, WriteError
from torchreel.guards.types_known import (
    ATOMS,
    PLAIN,
    compares_by_identity,
    has_nan,
    is_plain_to_the_bottom,
    is_python_class,
    same_slot,
)

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

Told = Callable[[Any], object] | None
CONTAINERS = (list, dict, set)
_COMPARED_BY_VALUE = (int, float, complex, str, bytes, tuple, frozenset, range, slice, torch.Size, torch.device)
_BITS = 2000  # of an int that is always written as text; of more, sys.set_int_max_str_digits() decides


def read_item(call: FollowedCall, value: Any, index: Any) -> Told:
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return tensors.run_op(call, [value, index], {})
    call.needs_identity(index, value)
    _guard_index(call, index)
    if isinstance(value, dict):
        call.check_key(index)
    if kind in PLAIN or (isinstance(value, tuple) and same_slot(value, tuple, "__getitem__")):
        if kind not in PLAIN:
            call.guard_class(value)
        return call.make if isinstance(index, slice) else None
    if call.is_fresh(value) and isinstance(value, CONTAINERS):
        return call.make if isinstance(index, slice) else None
    if call.is_given(value):
        call.guard_type(kind)
        return call.make if isinstance(index, slice) and kind is list else None
    if isinstance(value, numpy.ndarray):
        call.deep(value)
        call.deep(index)
        return call.make
    if isinstance(value, list) and same_slot(value, list, "__getitem__"):
        if call.writes is not None and call.writes.has_put(value, index):
            return None
        call.guard_whole(value)
        return call.make if isinstance(index, slice) else None
    if isinstance(value, dict):
        return _read_item_of_dict(call, value, index)
    if is_python_class(kind) or isinstance(value, type):
        call.guard_class(value)  # __getitem__ is followed
        if isinstance(value, type):
            call.guard_type(value)
        return None
    raise EagerError(f"reads an item of a {kind.__module__}.{kind.__name__}")


def _guard_index(call: FollowedCall, index: Any) -> None:
    """An index of a Python class has __index__, or __hash__ and __eq__, which are followed."""
    for part in (index.start, index.stop, index.step) if type(index) is slice else (index,):
        if type(part) not in PLAIN and not isinstance(part, (type, torch.Tensor)):
            call.guard_class(part)


def _read_item_of_dict(call: FollowedCall, value: dict[Any, Any], index: Any) -> Told:
    call.guard_class(value)
    getter = type_lookup(type(value), "__getitem__")
    if isinstance(getter, types.FunctionType):
        return None  # followed
    if not same_slot(value, dict, "__getitem__"):
        raise EagerError(f"reads an item of a {type(value).__name__}")
    if not compares_by_identity(index):
        raise EagerError(f"looks up a {type(index).__name__}, whose class decides what is equal")
    found = dict.get(value, index, NULL)
    if found is NULL and isinstance(value, collections.defaultdict):
        raise EagerError("may have a defaultdict make an item")
    call.guard_entry(value, index, found)
    return None


def store_item(call: FollowedCall, holder: Any, index: Any, value: Any) -> None:
    if isinstance(holder, torch.Tensor):
        tensors.run_op(call, [holder, index, value], {})
        return
    if isinstance(holder, numpy.ndarray):
        check_array_write(call, holder)
        return
    _guard_index(call, index)
    if call.is_fresh(holder):
        if isinstance(holder, dict):
            call.check_key(index)
        if isinstance(index, slice):
            iterate(call, value)
        return
    if type(holder) is dict and compares_by_identity(index):
        call.store(holder, index)
        return
    setter = type_lookup(type(holder), "__setitem__")
    if is_python_class(type(holder)) and isinstance(setter, types.FunctionType):
        call.guard_class(holder)
        return
    if call.writes is not None and type(holder) is list and type(index) is int and call.is_outer(holder):
        if -len(holder) <= index < len(holder) and holder[index] is value:
            call.guard_whole(holder)  # what is there, perhaps changed in place
        else:
            call.writes.set_item(holder, index)
        return
    raise WriteError(f"sets an item of a {type(holder).__name__}")


def check_array_write(call: FollowedCall, array: Any) -> None:
    from torchreel.guards.numpy_functions import check_write

    check_write(call, array)


def operate(call: FollowedCall, *operands: Any) -> Told:
    if any(isinstance(value, torch.Tensor) for value in operands):
        return tensors.run_op(call, list(operands), {})
    for value in operands:
        call.deep(value)
    known = all(type(value) in PLAIN or type(value) in CONTAINERS or _is_of_numpy(value) for value in operands)
    return call.make if known else None


def _is_of_numpy(value: Any) -> bool:
    return isinstance(value, (numpy.ndarray, numpy.generic))


def refuse_tensors_in(*values: Any) -> None:
    """Comparing containers compares what they hold: tensors by identity first, and then by their numbers."""
    for value in values:
        if not isinstance(value, torch.Tensor) and any(True for _ in tensors.tensors_in(value)):
            raise EagerError("compares containers that hold tensors")


def contains(call: FollowedCall, holder: Any, item: Any) -> None:
    if isinstance(holder, torch.Tensor):
        raise EagerError("asks whether a tensor contains something")
    if has_nan(item):
        raise EagerError("looks for a NaN, which is found by identity")
    call.needs_identity(item, holder)
    if isinstance(holder, (dict, set, frozenset)):
        call.check_key(item)
    if isinstance(holder, dict) and call.is_outer(holder) and same_slot(holder, dict, "__contains__"):
        if not compares_by_identity(item):
            raise EagerError(f"looks up a {type(item).__name__}, whose class decides what is equal")
        call.guard_class(holder)
        if call.writes is not None and type(item) is str and call.checks.leads_to(holder):
            path = f"{item!r} in {call.checks.path_of(holder)}"  # what is there may be written
            call.checks.ask(path, dict.__contains__, (holder, item), dict.__contains__(holder, item))
        else:
            call.guard_entry(holder, item, dict.get(holder, item, NULL))
        return
    call.guard_whole(holder)
    call.deep(item)
    if isinstance(holder, (list, tuple)):
        if isinstance(item, torch.Tensor) or any(isinstance(one, torch.Tensor) for one in holder):
            raise EagerError("looks for a tensor in a list, which compares numbers")
        call.deep(holder)


def refuse_equal(left: Any, right: Any) -> None:
    """Plain values are guarded by value: which of two equal ones it is, nobody knows in another call."""
    by_value = type(left) in _COMPARED_BY_VALUE or isinstance(left, (tuple, numpy.generic))
    if type(left) is type(right) and by_value:
        raise EagerError(f"asks which of two {type(left).__name__} objects that may be equal it has")


def iterate(call: FollowedCall, value: Any) -> Told:
    """iter(value): the iterator that comes of it is new."""
    if isinstance(value, torch.Tensor):
        return None  # Tensor.__iter__ is Python
    if type_lookup(type(value), "__next__") is not NULL:
        if call.is_fresh(value):
            return None
        raise WriteError(f"advances a {type(value).__name__} that was made before the call")
    if call.is_given(value):
        call.guard_type(type(value))
    is_set = isinstance(value, (set, frozenset)) and not call.is_outer(value)
    if is_set and not all(type(item) in ATOMS for item in value):
        raise EagerError("depends on the order of a set of objects")
    call.guard_whole(value)
    maker = type_lookup(type(value), "__iter__")
    if isinstance(maker, types.FunctionType):
        if maker.__code__.co_flags & CO_GENERATOR:
            return call.make
        call.readers.setdefault(maker.__code__, is_own_iterator)
        return None
    known = not is_python_class(type(value)) or isinstance(value, (list, dict, set, tuple))
    return call.make if known else None


def is_own_iterator(call: FollowedCall, value: Any) -> None:
    """What __iter__ of Python hands to C code, which advances it."""
    if not is_python_class(type(value)) and not isinstance(value, torch.Tensor):
        advance(call, value)


def advance(call: FollowedCall, value: Any) -> None:
    if is_python_class(type(value)):
        call.guard_class(value)  # __next__ is followed
    elif not call.is_fresh(value):
        raise WriteError(f"advances a {type(value).__name__} that was made before the call")


def look_at_item(call: FollowedCall, value: Any) -> None:
    """C code compares, adds or tests what a callback or an iterator gives it."""
    if isinstance(value, torch.Tensor):
        tensors.bind(call, value)
    elif type_lookup(type(value), "__next__") is not NULL:
        advance(call, value)
    else:
        call.deep(value)


def read_text(call: FollowedCall, value: Any) -> None:
    """str(value), repr(value) or format(value): known of plain values, of classes, and where Python says how."""
    if is_plain_to_the_bottom(value):
        if isinstance(value, range):
            raise EagerError("writes a range as text")  # equal ones may have other ends
        for number in value if isinstance(value, tuple) else (value,):
            if type(number) is int and number.bit_length() > _BITS:
                raise EagerError("writes a number of very many digits as text")
        return
    if type(value) in (list, dict) and not call.is_outer(value):
        for item in (*value, *(value.values() if isinstance(value, dict) else ())):
            read_text(call, item)
        return
    if isinstance(value, type) and same_slot(value, type, "__repr__") and same_slot(value, type, "__str__"):
        call.guard_type(value)
        call.guard_type(type(value))
        return
    if is_python_class(type(value)) and not isinstance(value, (list, dict, set, tuple)):
        format_, text, form = (type_lookup(type(value), name) for name in ("__format__", "__str__", "__repr__"))
        followed = isinstance(text, types.FunctionType) and isinstance(form, types.FunctionType)
        if followed and (isinstance(format_, types.FunctionType) or same_slot(value, object, "__format__")):
            call.guard_class(value)
            return
    raise EagerError("formats an object as text")
