"""A value as something that can be compared: bits, layout, types, order, and what is the same object or shares memory.

Two descriptions are equal if a program that was given the values could not tell them apart.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import enum
import types
import weakref
from collections.abc import Mapping
from typing import Any

import numpy
import torch

from tests.tape.outcome import bits

_ATOMS = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type(...),
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_SHOWN = 4  # numbers of a tensor that a message shows


class Description:
    """Describes values one after the other: what was seen before is told by its place, not again."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._memory: dict[int, int] = {}
        self._alive: list[Any] = []  # an address must not be used again while places are told by it

    def of(self, value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return str(value)
        if type(value) in _ATOMS or isinstance(value, _ATOMS):
            return type(value).__name__, repr(value)
        if isinstance(value, _NAMED):
            return type(value).__name__, getattr(value, "__name__", "")
        if isinstance(value, tuple):  # of equal tuples nobody may ask which one it is
            return type(value).__name__, [self.of(item) for item in value]
        if id(value) in self._places:
            return "seen before", self._places[id(value)]
        self._places[id(value)] = len(self._places)
        self._alive.append(value)
        return self._new(value)

    def _new(self, value: Any) -> Any:
        name = type(value).__name__
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.nn.Module):
            return name, value.training, self._named(value.named_parameters()), self._named(value.named_buffers())
        if isinstance(value, torch.optim.Optimizer):
            return name, self.of(value.state_dict())
        if isinstance(value, numpy.ndarray | numpy.generic):
            return name, str(value.dtype), value.shape, value.tobytes()
        if isinstance(value, set | frozenset):
            return name, sorted(repr(self.of(item)) for item in value)
        if isinstance(value, Mapping):
            return name, [(self.of(key), self.of(item)) for key, item in value.items()], self._own(value)
        if isinstance(value, list | collections.deque):
            return name, [self.of(item) for item in value], self._own(value)
        return self._object(value)

    def _object(self, value: Any) -> Any:
        name = type(value).__name__
        if isinstance(value, array.array):
            return name, value.typecode, value.tolist()
        if isinstance(value, bytearray):
            return name, bytes(value)
        if isinstance(value, weakref.ref | weakref.WeakMethod):
            return name, self.of(value())
        if isinstance(value, torch.Generator):
            return name, bits(value.get_state())
        if isinstance(value, BaseException):
            return name, self.of(value.args), self._own(value)
        if dataclasses.is_dataclass(value):
            return name, [(part.name, self.of(getattr(value, part.name, None))) for part in dataclasses.fields(value)]
        return name, self._own(value)

    def _own(self, value: Any) -> Any:
        """Attributes that are no part of what its type is for."""
        slots = [name for kind in type(value).__mro__ for name in kind.__dict__.get("__slots__", ())]
        own = {name: getattr(value, name) for name in slots if hasattr(value, name) and not name.startswith("__")}
        own.update(getattr(value, "__dict__", None) or {})
        return [(name, self.of(item)) for name, item in own.items()]

    def _named(self, values: Any) -> list[Any]:
        return [(name, self.of(value)) for name, value in values]

    def _tensor(self, value: torch.Tensor) -> Any:
        dense = value.layout is torch.strided and not value.is_nested
        flags = value.requires_grad, value.is_leaf, value.is_inference(), value.is_conj(), value.is_neg()
        shown = str(value.detach().reshape(-1)[:_SHOWN].tolist()) if dense and not value.is_meta else ""
        return (
            type(value).__name__,
            (value.dtype, tuple(value.shape), value.stride() if dense else None, str(value.device)),
            flags,
            shown,
            None if value.is_meta else bits(value.detach().clone()),  # NumPy would pin the memory of the original
            self._place_of_memory(value) if dense else None,
            self._own(value),
            self.of(value.grad) if value.is_leaf else None,
        )

    def _place_of_memory(self, value: torch.Tensor) -> int | None:
        memory = value.untyped_storage()
        if value.is_meta or memory.nbytes() == 0:
            return None
        return self._memory.setdefault(memory.data_ptr(), len(self._memory))


def difference(ours: Any, theirs: Any, path: str = "") -> str:
    """Where two descriptions part first, and what each says there."""
    both = isinstance(ours, tuple | list) and isinstance(theirs, tuple | list)
    if both and len(ours) == len(theirs):
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if a != b:
                return difference(a, b, f"{path}.{place}")
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for key in ours:
            if ours[key] != theirs[key]:
                return difference(ours[key], theirs[key], f"{path} {key}")
    return f"{path.strip()}: {str(ours)[:400]}, and eager has {str(theirs)[:400]}"
