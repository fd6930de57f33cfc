"""A backward that returns the parts of each gradient instead of their sum.

A tensor that is used several times gets a part of its gradient from each use. Autograd adds the parts in the order in
which they arrive, and in floating point (a + b) + c has other bits than a + (b + c). A graphed function is one node of
autograd's graph. If that node returned sums, parts from outside of the function would be added to a sum, and the bits
would differ from eager's. So the node returns the parts, and autograd adds all of them in eager's order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from torchreel import _graphs
from torchreel.tape.quiet import quietly


class GradientParts:
    """The parts of the gradients of `leaves`, in the backward of `outputs`. `indices` has the leaf of each part.

    `cuts` are intermediate tensors of the call. The backward stops at them, too: they count as leaves, and are numbered
    after the real ones.
    """

    def __init__(
        self, outputs: list[torch.Tensor], leaves: list[torch.Tensor], cuts: Sequence[torch.Tensor] = ()
    ) -> None:
        with quietly():
            ends = [tensor.detach().requires_grad_() for tensor in cuts]
        self._leaves = [*leaves, *ends]
        self._cut = _graphs.CutEdges(outputs, list(cuts), ends) if cuts else None
        with self._ended():
            several = dict(_graphs.gradient_parts(outputs, self._leaves))
        self.indices: list[int] = []  # the leaf of each part; parts of one leaf in the order in which they arrive
        # The node that computes the part, and which of its results it is. None for a leaf that has only one part.
        self._nodes: list[tuple[Any, int] | None] = []
        for index in range(len(self._leaves)):
            for part in several.get(index, [None]):
                self.indices.append(index)
                self._nodes.append(part)

    @contextlib.contextmanager
    def _ended(self) -> Iterator[None]:
        """While this is open, a backward stops at the cuts."""
        if self._cut is None:
            yield
            return
        self._cut.exchange()
        try:
            yield
        finally:
            self._cut.exchange()

    def run(
        self, outputs: list[torch.Tensor], gradients: list[torch.Tensor], **options: bool
    ) -> list[torch.Tensor | None]:
        """Run torch.autograd.grad, and return the parts. `outputs` may be a subset of the outputs of the call."""
        found: list[torch.Tensor | None] = [None] * len(self._nodes)
        hooks = [
            part[0].register_hook(_taken(found, number, part[1]))
            for number, part in enumerate(self._nodes)
            if part is not None
        ]
        try:
            with self._ended():
                whole = torch.autograd.grad(outputs, self._leaves, gradients, allow_unused=True, **options)
        finally:
            for hook in hooks:
                hook.remove()
        for number, part in enumerate(self._nodes):
            if part is None:
                found[number] = whole[self.indices[number]]
        return found


def _taken(found: list[torch.Tensor | None], number: int, index: int) -> Callable[[Any, Any], None]:
    """A hook of a node that notes its result `index` as part `number`."""

    def hook(given: Any, _: Any) -> None:
        found[number] = given[index]

    return hook
