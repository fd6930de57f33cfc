"""A backward whose parts are not added up: what flows into one tensor on several ways stays apart.

Autograd adds the parts of a gradient in the order in which they come, and floating point gives (a + b) + c other bits
than a + (b + c). So a node that stands for a whole function hands on the parts: whatever else uses the tensor, autograd
adds all of them as it does without us.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from torchreel import _graphs
from torchreel.tape.quiet import quietly


class GradientParts:
    """For outputs of a call and the leaves that they came from. `indices` names the leaf of each part.

    `cuts` are tensors of the call at which the backward ends as well: they count as leaves, after the others.
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
        self.indices: list[int] = []  # of the leaf, for each part; those of one leaf in their order
        self._nodes: list[tuple[Any, int] | None] = []
        for index in range(len(self._leaves)):
            for part in several.get(index, [None]):
                self.indices.append(index)
                self._nodes.append(part)

    @contextlib.contextmanager
    def _ended(self) -> Iterator[None]:
        """The backward ends at the cuts, and does not go on to what they came from."""
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
        """The parts, by torch.autograd.grad: some of the outputs may be left out."""
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
    def hook(given: Any, _: Any) -> None:
        found[number] = given[index]

    return hook
