"""NumPy in a followed call: arrays that the call made, and functions that compute with these and with plain values."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import numpy
import torch

from torchreel._torch.c_functions import TensorBase
from torchreel.guards.eager import EagerError
from torchreel.guards.operations import Told
from torchreel.guards.types_known import is_plain_to_the_bottom

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

_MAKERS = ("arange", "zeros", "ones", "empty", "full", "array", "asarray", "ascontiguousarray", "concatenate", "where",
           "dot", "matmul", "zeros_like", "ones_like", "empty_like", "stack", "linspace", "can_cast",
           "result_type", "promote_types", "normalize_axis_index")  # fmt: skip
# Methods that hand memory out, write to files, or change how others see the array.
_NOT_KNOWN = frozenset(
    ("tofile", "dump", "dumps", "setflags", "__setstate__", "__reduce__", "__reduce_ex__", "__dlpack__",
     "__array_interface__", "newbyteorder", "getfield", "setfield", "resize")
)  # fmt: skip


_EXACT = frozenset(numpy.sctypeDict.values()) - {numpy.void, numpy.object_}


def is_exact(value: Any) -> bool:
    """A dtype, or a number of one of NumPy's own classes, which cannot change."""
    return type(value) in _EXACT or isinstance(value, numpy.dtype)


def is_known(call: FollowedCall, value: Any) -> bool:
    """A plain value, a number of NumPy, or an array that the call made; also lists of these that the call made."""
    if is_exact(value) or is_plain_to_the_bottom(value):
        return True
    if isinstance(value, type) and issubclass(value, (numpy.generic, int, float, bool, complex)):
        return True
    if type(value) in (list, tuple):
        return (type(value) is tuple or call.is_fresh(value)) and all(is_known(call, item) for item in value)
    # Once an op ran after an array and a tensor came to share memory, the op may have written to the array.
    stale = call.arrays_are_stale and shares_with_tensor(call, value)
    return type(value) is numpy.ndarray and call.is_fresh(value) and not stale


def shares_with_tensor(call: FollowedCall, value: Any) -> bool:
    """Whether an array may lie on the memory of a tensor."""
    if type(value) is not numpy.ndarray or value.dtype.hasobject:
        return bool(call.shared_arrays)
    return any(numpy.may_share_memory(value, one) for one in call.shared_arrays)


_WRITERS = frozenset(
    ("__setitem__", "__delitem__", "fill", "sort", "put", "partition", "itemset", "byteswap", "__iadd__", "__isub__",
     "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__", "__iand__", "__ior__", "__ixor__",
     "__ilshift__", "__irshift__", "__imatmul__")
)  # fmt: skip


def check_write(call: FollowedCall, value: Any) -> None:
    """An array is written: it must be of this call, and no tensor may lie on its memory, of which no op would tell."""
    if not is_known(call, value) or shares_with_tensor(call, value):
        raise EagerError("writes to an array that a tensor may share its memory with, or that was made before the call")


def write(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    check_write(call, values[0])
    return compute(call, values, keywords)


def compute(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    for value in (*values, *keywords.values()):
        if not is_known(call, value):
            raise EagerError(f"hands a {type(value).__name__} to NumPy that was made before the call, or is not known")
    if keywords.get("out") is not None or keywords.get("inplace"):
        check_write(call, keywords.get("out", values[0]))
    return call.make


def from_array(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """torch.from_numpy(): a tensor on the memory of an array, which the tape takes for a constant."""
    if not all(is_known(call, value) for value in (*values, *keywords.values())):
        raise EagerError("makes a tensor of an array that was made before the call")
    call.shared_arrays += [one for one in (*values, *keywords.values()) if isinstance(one, numpy.ndarray)]
    return call.make


def to_array(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Tensor.numpy(): the tape compares the bytes at each replay. What is written to the array, it would not see."""
    from torchreel.guards import tensors

    tensors.bind(call, values[0])

    def made(array: Any) -> None:
        call.shared_arrays.append(array)
        call.make(array)

    return made


def rule_of_object(function: Any) -> Any:
    """The rule for calling a ufunc, or a wrapper of NumPy, whose Python is followed."""
    kind = type(function)
    if kind is numpy.ufunc or kind is _DISPATCHER:
        return compute
    return None


_DISPATCHER = type(numpy.sum)


def know(functions: dict[int, Any], methods: dict[int, Any], kept: list[Any]) -> None:
    known = [getattr(numpy, name, None) for name in _MAKERS]
    for one in known:
        if type(one) is types.BuiltinFunctionType:
            functions[id(one)] = compute
            kept.append(one)
    for kind in (numpy.ndarray, numpy.generic):
        for name, one in vars(kind).items():
            if isinstance(one, (types.MethodDescriptorType, types.WrapperDescriptorType)) and name not in _NOT_KNOWN:
                methods[id(one)] = write if name in _WRITERS else compute
                kept.append(one)
    methods[id(vars(TensorBase)["numpy"])] = to_array
    functions[id(torch.from_numpy)] = from_array
