"""Arguments of other classes than torch's and Python's own, with tensors inside: a batch, a cache, a model's output.

Another call may have another object. It is as good if it is of the same class, and all that it holds is: tensors stand
where tensors stood, plain values are the same to the bit, and any other object is the very same one.
"""

from __future__ import annotations

import struct
from typing import Any

import torch

from torchreel import _graphs
from torchreel.guards.objects import inside_of, is_taken_apart
from torchreel.tape.structure import Structure, TensorLeaf, Whole, Wrapper

_COMMON = (torch.Tensor, bool, int, float, complex, str, bytes, type(None), tuple, list, dict)
_DEEPEST = 12
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


class OtherError(Exception):
    """The call is another one."""


def tensors_of(shape: Any, value: Any) -> list[torch.Tensor]:
    """The tensors of a value, in the order of a structure that was taken apart before. Raises OtherError."""
    found: dict[int, torch.Tensor] = {}
    _match(shape, value, found, 0)
    return [found[index] for index in range(len(found))]


def _match(shape: Any, value: Any, found: dict[int, torch.Tensor], depth: int) -> None:
    kind = type(shape)
    if depth > _DEEPEST:
        raise OtherError
    if kind is TensorLeaf:
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise OtherError
        found[shape.index] = value
    elif kind is Whole:
        _match(shape.shape, value, found, depth)
    elif kind is Wrapper or kind is not type(value):
        raise OtherError
    elif kind in _PLAIN:
        if not _is_same(shape, value):
            raise OtherError
    elif kind in (list, tuple, dict) or (shape is not value and is_taken_apart(shape)):
        _match_parts(list(inside_of(shape)), list(inside_of(value)), found, depth)
    elif shape is not value:
        raise OtherError


def _match_parts(shapes: list[Any], values: list[Any], found: dict[int, torch.Tensor], depth: int) -> None:
    if len(shapes) != len(values):
        raise OtherError
    for (name, shape), (other, value) in zip(shapes, values, strict=True):
        if type(name) is not type(other) or not (name is other or (type(name) in _PLAIN and _is_same(name, other))):
            raise OtherError
        _match(shape, value, found, depth + 1)


def _is_same(was: Any, now: Any) -> bool:
    if type(was) is not type(now):
        return False
    if type(was) is float:
        return struct.pack("d", was) == struct.pack("d", now)
    if type(was) is complex:
        return _is_same(was.real, now.real) and _is_same(was.imag, now.imag)
    return bool(was == now)


def other_objects(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Arguments that are neither tensors nor plain: a function may return one, such as a cache that it filled."""
    return [one for one in (*args, *kwargs.values()) if not isinstance(one, _COMMON)]


def fit_objects(signature: _graphs.Signature, given: Structure) -> None:
    """Have tensors found that are inside of objects. One without any is known by itself."""
    if signature.is_plain or signature.tensors == len(given.tensors):
        return
    shape = given.shape

    def found(*args: Any, **kwargs: Any) -> list[torch.Tensor] | None:
        try:
            return tensors_of(shape, (args, kwargs))
        except OtherError:
            return None

    signature.set_fit(found, given.tensors)
