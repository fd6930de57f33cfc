"""What a function can ask of its inputs in Python, besides what the tape knows of them: by the names in its code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from torchreel._torch.tensors import base_of, is_view
from torchreel.errors import GuardError

# Each with what is to stay the same. What lies beyond an input, its base or its graph, must be the same thing.
_ASKED: dict[str, Callable[[torch.Tensor], Any]] = {
    "is_leaf": lambda tensor: tensor.is_leaf,
    "grad_fn": lambda tensor: tensor.grad_fn,
    "retains_grad": lambda tensor: tensor.retains_grad,
    "output_nr": lambda tensor: tensor.output_nr,
    "_is_view": is_view,
    "_base": base_of,
    "is_inference": lambda tensor: tensor.is_inference(),
    "is_shared": lambda tensor: tensor.is_shared(),
    "is_pinned": lambda tensor: tensor.is_pinned(),
    "untyped_storage": lambda tensor: tensor.untyped_storage().nbytes(),
    "storage": lambda tensor: tensor.untyped_storage().nbytes(),
    "_typed_storage": lambda tensor: tensor.untyped_storage().nbytes(),
}
_THINGS = {"grad_fn", "_base"}


class Questions:
    """The questions that Python asks of the inputs of a trace."""

    def __init__(self, names: Iterable[str], inputs: Sequence[torch.Tensor]) -> None:
        self._asked = sorted(set(_ASKED).intersection(names))
        self._was = [self._answers(tensor) for tensor in inputs] if self._asked else []

    def _answers(self, tensor: torch.Tensor) -> list[Any]:
        return [_answer(name, tensor) for name in self._asked]

    def check(self, names: Sequence[str], inputs: Sequence[torch.Tensor]) -> None:
        """Raises a GuardError if one would be answered in another way. `names` are those of the inputs."""
        for name, tensor, answers in zip(names, inputs, self._was, strict=False):
            for asked, was, now in zip(self._asked, answers, self._answers(tensor), strict=True):
                same = was is now if asked in _THINGS else was == now
                if not same:
                    raise GuardError(
                        f"Input {name} has another {asked} now than when the tape was made ({_text(was)}, now "
                        f"{_text(now)}), and the function asks for it: give one that is like it, or trace again."
                    )


def _answer(name: str, tensor: torch.Tensor) -> Any:
    try:
        return _ASKED[name](tensor)
    except (RuntimeError, NotImplementedError):  # a tensor without a storage
        return None


def _text(value: Any) -> str:
    return str(value) if isinstance(value, bool | int | type(None)) else f"another {type(value).__name__}"
