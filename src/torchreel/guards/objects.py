"""Objects among the arguments of a call that are compared by what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchreel import _graphs


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
        for _, part in inside_of(value):
            yield from objects_in(part, seen)


def is_taken_apart(value: Any) -> bool:
    """Whether all that such an object holds can be seen: in its __dict__, or as items of a dict, list or tuple."""
    if isinstance(value, (type, torch.nn.Module, torch.optim.Optimizer, torch.Tensor)) or callable(value):
        return False
    own = _graphs.instance_dict(value)
    if own is None and not isinstance(value, (list, dict, tuple)):
        return False
    return not any(vars(kind).get("__slots__") for kind in type(value).__mro__)


def inside_of(value: Any) -> Iterator[tuple[Any, Any]]:
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
