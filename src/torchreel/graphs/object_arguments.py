"""Arguments of other classes than torch's and Python's own, with tensors inside: a batch, a cache, a model's output.

Another call may have another object. It is as good if it is of the same class, and all that it holds is: tensors stand
where tensors stood, plain values are the same to the bit, and any other object is the very same one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import torch

from torchreel import _graphs
from torchreel.tape.structure import Place, Whole, Wrapper

_DEEPEST = 12
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


class OtherError(Exception):
    """The call is another one."""


def tensors_of(shape: Any, value: Any) -> list[torch.Tensor]:
    """The tensors of a value, in the order of a structure that was taken apart before. Raises OtherError."""
    found: dict[int, torch.Tensor] = {}
    _match(shape, value, found, 0)
    return [found[index] for index in range(len(found))]


def objects_in(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """The objects that are compared by what they hold, and the containers in them."""
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor) or id(value) in seen:
        return
    seen.add(id(value))
    if type(value) in (list, dict, tuple):
        if type(value) is not tuple:
            yield value
        for item in value.values() if type(value) is dict else value:
            yield from objects_in(item, seen)
    elif is_taken_apart(value):
        yield value
        for _, part in _inside(value):
            yield from objects_in(part, seen)


def is_taken_apart(value: Any) -> bool:
    """Whether all that such an object holds can be seen: in its __dict__, or as items of a dict, list or tuple."""
    if isinstance(value, (type, torch.nn.Module, torch.optim.Optimizer, torch.Tensor)) or callable(value):
        return False
    own = _graphs.instance_dict(value)
    if own is None and not isinstance(value, (list, dict, tuple)):
        return False
    return not any(vars(kind).get("__slots__") for kind in type(value).__mro__)


def _match(shape: Any, value: Any, found: dict[int, torch.Tensor], depth: int) -> None:
    kind = type(shape)
    if depth > _DEEPEST:
        raise OtherError
    if kind is Place:
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
        _match_parts(list(_inside(shape)), list(_inside(value)), found, depth)
    elif shape is not value:
        raise OtherError


def _match_parts(shapes: list[Any], values: list[Any], found: dict[int, torch.Tensor], depth: int) -> None:
    if len(shapes) != len(values):
        raise OtherError
    for (name, shape), (other, value) in zip(shapes, values, strict=True):
        if type(name) is not type(other) or not (name is other or (type(name) in _PLAIN and _is_same(name, other))):
            raise OtherError
        _match(shape, value, found, depth + 1)


def _inside(value: Any) -> Iterator[tuple[Any, Any]]:
    """All that it holds, in its order."""
    if isinstance(value, dict):
        yield from dict.items(value)
    elif isinstance(value, list):
        yield from enumerate(list.__iter__(value))
    elif isinstance(value, tuple):
        yield from enumerate(tuple.__iter__(value))
    own = _graphs.instance_dict(value)
    if own is not None:
        yield from own.items()


def _is_same(was: Any, now: Any) -> bool:
    if type(was) is not type(now):
        return False
    if type(was) is float:
        return struct.pack("d", was) == struct.pack("d", now)
    if type(was) is complex:
        return _is_same(was.real, now.real) and _is_same(was.imag, now.imag)
    return bool(was == now)
