"""Rules of methods of plain values and of containers."""

from __future__ import annotations

import collections
import types
from typing import TYPE_CHECKING, Any

import torch

from torchreel._graphs import NULL
from torchreel.guards import operations, tensors
from torchreel.guards.eager import EagerError, WriteError
from torchreel.guards.python_functions.arguments import look_at, looks
from torchreel.guards.python_functions.classes import make_dict
from torchreel.guards.python_functions.table import METHODS, Rule, Told, know, methods_of
from torchreel.guards.types_known import ATOMS, compares_by_identity, is_plain_to_the_bottom

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall


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
    know(METHODS, _of_plain, *(one for one in _all_methods_of(_kind) if (_kind, one.__name__) not in _NOT_OF_VALUE))


def _join(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    operations.iterate(call, values[1])
    if isinstance(values[0], bytes):  # which takes bytearrays, too
        call.deep(values[1])
        look_at(call, values[1])
    return None


know(METHODS, _join, str.join, bytes.join)


def _of_tuple(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    operations.refuse_tensors_in(*values)
    if any(isinstance(value, torch.Tensor) for value in values[1:]):
        raise EagerError("looks for a tensor in a tuple, which compares numbers")
    for value in values[1:]:
        call.deep(value)
    call.deep(values[0])
    return None


know(METHODS, _of_tuple, *methods_of(tuple, "index", "count", "__eq__", "__ne__", "__lt__", "__hash__", "__add__"))


def _item_of_tuple(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return operations.read_item(call, values[0], values[1])


know(METHODS, _item_of_tuple, *methods_of(tuple, "__getitem__"))


def _length(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """tuple.__len__, list.__len__: what a class of Python calls with super()."""
    if call.is_outer(values[0]) and not isinstance(values[0], tuple):
        call.checks.length(values[0])
        call.guard_class(values[0])
    return None


know(METHODS, _length, *(vars(kind)["__len__"] for kind in (tuple, list, dict, set, frozenset)))


def _iterator(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    value = values[0]
    if call.is_outer(value) and not isinstance(value, tuple):
        call.checks.whole(value)
        call.guard_class(value)
    return call.make


know(METHODS, _iterator, *(vars(kind)["__iter__"] for kind in (tuple, list, dict, collections.OrderedDict)),
     *methods_of(list, "__reversed__"), *methods_of(dict, "__reversed__"))  # fmt: skip


def _read_whole(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A method that reads all of a container; other containers that it is given are read as well."""
    if call.is_outer(values[0]):
        call.checks.whole(values[0])
        call.guard_class(values[0])
    for value in (*values[1:], *keywords.values()):
        look_at(call, value)
    return call.make


def _compare_whole(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A method that compares what a container holds, to the bottom."""
    _read_whole(call, values, keywords)
    call.deep(values[0])
    if any(isinstance(one, torch.Tensor) for one in (*tensors.tensors_in(values[0]), *values[1:])):
        raise EagerError("looks for a tensor in a container, which compares numbers")
    return None


know(METHODS, _compare_whole, *methods_of(list, "index", "count", "__contains__", "__eq__", "__ne__"),
     *methods_of(dict, "__eq__", "__ne__"), *methods_of(collections.OrderedDict, "__eq__"))  # fmt: skip
know(
    METHODS, _read_whole,
    *methods_of(list, "copy", "__mul__", "__add__", "__rmul__"),
    *methods_of(dict, "keys", "values", "items", "copy", "__or__"),
    *methods_of(collections.OrderedDict, "keys", "values", "items", "copy"),
    *methods_of(set, "copy", "union", "intersection", "difference", "issubset", "issuperset", "isdisjoint",
                "symmetric_difference", "__contains__", "__or__", "__and__", "__sub__", "__eq__"),
    *methods_of(frozenset, "copy", "union", "intersection", "difference", "issubset", "issuperset", "isdisjoint",
                "__contains__", "__or__", "__and__", "__sub__", "__eq__"),
)  # fmt: skip


def _list_item(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return operations.read_item(call, values[0], values[1])


know(METHODS, _list_item, *methods_of(list, "__getitem__"))


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


know(METHODS, _dict_get, *methods_of(dict, "get", "__getitem__", "__contains__"))


def _dict_setdefault(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if call.is_outer(values[0]):
        _dict_get(call, values, keywords)
        if not dict.__contains__(values[0], values[1]):
            raise WriteError("adds to a dict that was made before the call")
    elif call.is_given(values[0]):
        raise WriteError("writes to one of its arguments")
    return None


know(METHODS, _dict_setdefault, *methods_of(dict, "setdefault"), *methods_of(collections.OrderedDict, "setdefault"))


def change(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A method that changes its object: only what the call made may be changed."""
    if not call.is_fresh(values[0]):
        kind = "one of its arguments" if call.is_given(values[0]) else "what was made before the call"
        raise WriteError(f"changes a {type(values[0]).__name__}, which is {kind}")
    return None


def _append(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if call.writes is None or type(values[0]) is not list or not call.is_outer(values[0]) or len(values) != 2:
        return change(call, values, keywords)
    call.writes.append(values[0], values[1])
    return None


def _change_by_iterable(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    change(call, values, keywords)
    for value in values[1:]:
        operations.iterate(call, value)
    return None


def _change_by_pairs(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    change(call, values, keywords)
    make_dict(call, values[1:], keywords)
    return None


def _set_item(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    change(call, values, keywords)
    if isinstance(values[1], slice):
        operations.iterate(call, values[2])
    return None


def _sort(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    change(call, values, keywords)
    looks(call)
    for value in (*values, *keywords.values()):
        look_at(call, value)
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
    change(call, values, keywords)
    for value in values[1:]:
        call.deep(value)
        if isinstance(values[0], list):
            operations.refuse_tensors_in(*values[:1])
        else:
            call.check_key(value)
    return None


know(METHODS, _append, *methods_of(list, "append"))
know(METHODS, change, *methods_of(list, "insert", "clear", "reverse", "__delitem__"),
     *methods_of(dict, "clear", "__setitem__", "__delitem__", "popitem"), *methods_of(set, "clear"),
     *methods_of(collections.OrderedDict, "move_to_end", "clear", "__setitem__", "__delitem__", "popitem"),
     *methods_of(collections.deque, "append", "appendleft", "clear", "pop", "popleft", "reverse", "rotate"),
     )  # fmt: skip
know(METHODS, _change_by_iterable, *methods_of(list, "extend", "__iadd__", "__init__"),
     *methods_of(set, "update", "__init__", "difference_update", "intersection_update"),
     *methods_of(collections.deque, "extend", "extendleft"))  # fmt: skip
know(METHODS, _change_and_give, *methods_of(list, "pop", "remove"), *methods_of(dict, "pop"),
     *methods_of(set, "remove"), *methods_of(collections.OrderedDict, "pop"))  # fmt: skip
know(METHODS, _change_set(adds=True), *methods_of(set, "add"))
know(METHODS, _change_set(adds=False), *methods_of(set, "discard"))
know(METHODS, _change_by_pairs, *methods_of(dict, "update", "__ior__", "__init__"),
     *methods_of(collections.OrderedDict, "update", "__init__"))  # fmt: skip
know(METHODS, _set_item, *methods_of(list, "__setitem__"))
know(METHODS, _sort, *methods_of(list, "sort"))
# pop() of a set gives whichever comes first: not known.

del _kind
