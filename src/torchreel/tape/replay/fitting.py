"""A value held against a structure that was taken apart before: its tensors, in the order of that structure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from torchreel._torch.dispatch import is_wrapper_subclass
from torchreel.tape.structure import TensorLeaf, Whole, Wrapper


class MisfitError(Exception):
    """Where the value differs."""

    def __init__(self, path: str, was: Any, now: Any) -> None:
        super().__init__(path)
        self.path, self.was, self.now = path, was, now


_MISSING = object()
# Compared by identity: the tape holds the object itself, and another one like it will not do.
_SELVES = (torch.Generator, torch.nn.Module, torch.optim.Optimizer)


def fit(shape: Any, value: Any) -> list[torch.Tensor]:
    """Tensors stand where tensors stood, by name in mappings; all else is equal to what it was. Raises MisfitError."""
    found: dict[int, torch.Tensor] = {}
    _fit(shape, value, "", found)
    return [found[index] for index in range(len(found))]


def _fit(shape: Any, value: Any, path: str, found: dict[int, torch.Tensor]) -> None:
    if type(shape) is TensorLeaf:
        if type(value) is not torch.Tensor and not _is_one_tensor(value):
            raise MisfitError(path, shape, value)
        found[shape.index] = value
    elif type(shape) is tuple or type(shape) is list:
        if type(value) is not type(shape) or len(value) != len(shape):
            raise MisfitError(path, shape, value)
        for index, part in enumerate(shape):
            _fit(part, value[index], f"{path}.{index}", found)
    elif type(shape) is dict:
        _fit_mapping(shape, value, path, found)
    elif type(shape) is Wrapper:
        _fit_wrapper(shape, value, path, found)
    elif type(shape) is Whole:
        _fit_object(shape.shape, value, path, found)
    elif isinstance(shape, tuple) and hasattr(shape, "_fields"):
        if type(value) is not type(shape):
            raise MisfitError(path, shape, value)
        for name, part in zip(shape._fields, shape, strict=True):
            _fit(part, getattr(value, name), f"{path}.{name}", found)
    elif shape is not value and not _is_same(shape, value):
        raise MisfitError(path, shape, value)


def _is_one_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not is_wrapper_subclass(value)


def _fit_mapping(shape: Any, value: Any, path: str, found: dict[int, torch.Tensor]) -> None:
    if type(value) is not type(shape) or value.keys() != shape.keys():
        raise MisfitError(path, shape, value)
    for key, part in shape.items():
        _fit(part, value[key], f"{path}.{key}", found)


def _fit_wrapper(shape: Wrapper, value: Any, path: str, found: dict[int, torch.Tensor]) -> None:
    if type(value) is not shape.type or value.size() != shape.size:
        raise MisfitError(path, shape, value)
    for name, part in shape.parts.items():
        _fit(part, getattr(value, name), f"{path}.{name}", found)


def _fit_object(shape: Any, value: Any, path: str, found: dict[int, torch.Tensor]) -> None:
    """Fit an object of any class by its parts and attributes, from which the structure took its tensors."""
    if type(shape) is TensorLeaf:
        return _fit(shape, value, path, found)
    if type(value) is not type(shape):
        raise MisfitError(path, shape, value)
    inside = list(_inside(shape))
    if not inside:
        if shape is not value and not _is_same(shape, value):
            raise MisfitError(path, shape, value)
        return None
    now = dict(_inside(value))
    for name, part in inside:
        _fit_object(part, now.pop(name, _MISSING), f"{path}.{name}", found)
    if now:
        raise MisfitError(path, shape, value)
    return None


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(index), part) for index, part in enumerate(value))
    if hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module | type):
        yield from vars(value).items()


def _is_same(was: Any, now: Any) -> bool:
    if type(was) is not type(now) or isinstance(was, _SELVES):
        return False
    if getattr(type(was), "__eq__", None) is object.__eq__ and not callable(was):
        return True  # its class does not compare, and its attributes were compared before
    try:
        return bool(was == now)
    except Exception:  # of a class of the user's
        return False
