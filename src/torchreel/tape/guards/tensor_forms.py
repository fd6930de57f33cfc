"""What Python can ask of a tensor without an op: its shape, its dtype, whether it requires a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchreel.errors import GuardError
from torchreel.tape.plain import is_tensor

Form = tuple[Any, ...]
_NAMES = ("class", "dtype", "device", "layout", "requires_grad", "shape", "strides")


def form_of(value: Any) -> Form:
    if not is_tensor(value):
        return (type(value),)
    form = type(value), value.dtype, value.device, value.layout, value.requires_grad
    if value.is_nested or value.layout != torch.strided:
        return form
    return *form, tuple(value.shape), value.stride()


class TensorForm:
    """The form of a tensor of the state that no op of the tape reads, found by its path."""

    def __init__(self, name: str, read: Callable[[], Any]) -> None:
        self._name, self._read = name, read
        self._was = form_of(read())

    def check(self) -> None:
        """Raises a GuardError if another one is there, or the same one has changed."""
        now = form_of(self._read())
        if now == self._was:
            return
        for name, one, other in zip(_NAMES, self._was, now, strict=False):
            if one != other:
                raise GuardError(
                    f"{self._name} had the {name} {_text(one)} when the tape was made, and has {_text(other)} now, and "
                    "the function can ask for it: trace again."
                )
        raise GuardError(f"{self._name} is another kind of tensor now than when the tape was made: trace again.")


def _text(value: Any) -> str:
    return value.__qualname__ if isinstance(value, type) else str(value)
