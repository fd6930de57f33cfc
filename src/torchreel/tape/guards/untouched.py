"""Gradients of tensors that no op of a tape reads: a call of the function would clear them, or take a step by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from torchreel.errors import GuardError


class Untouched:
    """The tensors that the function clears, or that its optimizers hold, and that had no gradient to go by."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._tensors = list({id(tensor): tensor for tensor in tensors if tensor.grad is None}.values())

    def check(self, name: Callable[[torch.Tensor], str]) -> None:
        """Raises a GuardError if one has a gradient now."""
        for tensor in self._tensors:
            if tensor.is_leaf and tensor.grad is not None:
                raise GuardError(
                    f"{name(tensor)} has a gradient now, and no op of the tape reads that tensor, but the "
                    "function would clear the gradient, or its optimizer take a step by it: set it to None, or trace "
                    "again."
                )
