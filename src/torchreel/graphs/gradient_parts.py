"""A backward whose parts are not added up: what flows into one tensor on several ways stays apart.

Autograd adds the parts of a gradient in the order in which they come, and floating point gives (a + b) + c other bits
than a + (b + c). So a node that stands for a whole function hands on the parts: whatever else uses the tensor, autograd
adds all of them as it does without us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchreel import _graphs


class GradientParts:
    """For outputs of a call and the leaves that they came from. `places` names the leaf of each part."""

    def __init__(self, outputs: list[torch.Tensor], leaves: list[torch.Tensor]) -> None:
        self._leaves = leaves
        several = dict(_graphs.gradient_parts(outputs, leaves))
        self.places: list[int] = []  # of the leaf, for each part; those of one leaf in their order
        self._nodes: list[tuple[Any, int] | None] = []
        for place in range(len(leaves)):
            for part in several.get(place, [None]):
                self.places.append(place)
                self._nodes.append(part)

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
            whole = torch.autograd.grad(outputs, self._leaves, gradients, allow_unused=True, **options)
        finally:
            for hook in hooks:
                hook.remove()
        for number, part in enumerate(self._nodes):
            if part is None:
                found[number] = whole[self.places[number]]
        return found


def _taken(found: list[torch.Tensor | None], number: int, place: int) -> Callable[[Any, Any], None]:
    def hook(given: Any, _: Any) -> None:
        found[number] = given[place]

    return hook
