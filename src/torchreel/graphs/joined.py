"""A call whose inputs have a history of their own: recorded on leaves, and joined to that history afterwards.

The backward that a recording takes along must end at the inputs. It would not, if they led on to what made them: to
earlier calls of the same function, for example, with the same parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Joint:
    """Results of a call on leaves, and which of these, and which parameters, they came from."""

    outputs: list[torch.Tensor]
    leaves: list[torch.Tensor]

    def connected(self, owners: list[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs, as results of `owners`, one for each leaf."""
        return list(_Joined.apply(self, *owners))


class _Joined(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, joint: Joint, *owners: torch.Tensor) -> tuple[torch.Tensor, ...]:
        context.joint = joint
        context.set_materialize_grads(False)
        return tuple(tensor.detach() for tensor in joint.outputs)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        joint = context.joint
        given = [pair for pair in zip(joint.outputs, gradients, strict=True) if pair[1] is not None]
        if not given:
            return (None, *[None] * len(joint.leaves))
        outputs, known = zip(*given, strict=True)
        found = torch.autograd.grad(
            outputs, joint.leaves, known, allow_unused=True, retain_graph=True, create_graph=torch.is_grad_enabled()
        )
        return (None, *found)


def leaves_for(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The inputs, with a leaf on the same memory in place of each that has a history."""
    found: dict[int, torch.Tensor] = {}
    for tensor in inputs:
        if tensor.requires_grad and tensor.grad_fn is not None:
            found.setdefault(id(tensor), tensor.detach().requires_grad_())
    return [found.get(id(tensor), tensor) for tensor in inputs]
