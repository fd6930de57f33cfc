"""A call whose inputs have a history of their own: recorded on leaves, and joined to that history afterwards.

The backward that a recording takes along must end at the inputs. It would not, if they led on to what made them: to
earlier calls of the same function, for example, with the same parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchreel._torch.autograd import backward_hooks
from torchreel.graphs.record.gradient_parts import GradientParts

if TYPE_CHECKING:
    from torchreel.graphs.record.derivatives import Segment


class Joint:
    """Results of a call on leaves, with the leaves and parameters that they depend on."""

    def __init__(
        self, outputs: list[torch.Tensor], leaves: list[torch.Tensor], cuts: Sequence[torch.Tensor] = ()
    ) -> None:
        self.outputs = outputs
        self.leaves = leaves
        self.cuts = cuts  # which count as leaves, after the others
        self.parts = GradientParts(outputs, leaves, cuts)

    def connected(self, owners: list[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs, as results of `owners`, one for each leaf and cut."""
        return list(_Joined.apply(self, *(owners[index] for index in self.parts.indices)))


class _Joined(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, joint: Joint, *owners: torch.Tensor) -> tuple[torch.Tensor, ...]:
        context.joint = joint
        context.save_for_backward(*owners)
        context.set_materialize_grads(False)
        return tuple(tensor.detach() for tensor in joint.outputs)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        joint = context.joint
        given = [pair for pair in zip(joint.outputs, gradients, strict=True) if pair[1] is not None]
        if not given:
            return (None, *[None] * len(joint.parts.indices))
        outputs, known = (list(each) for each in zip(*given, strict=True))
        if torch.is_grad_enabled():
            of_parts = dict(zip(joint.parts.indices, context.saved_tensors, strict=True))
            owners = [of_parts[index] for index in range(len(joint.leaves) + len(joint.cuts))]
            return (None, *derivatives_again(joint.parts, outputs, joint.leaves, owners, known, joint.cuts))
        return (None, *joint.parts.run(outputs, known, retain_graph=True))


def derivatives_again(
    parts: GradientParts,
    outputs: list[torch.Tensor],
    leaves: list[torch.Tensor],
    owners: list[torch.Tensor],
    given: list[torch.Tensor],
    cuts: Sequence[torch.Tensor] = (),
) -> list[torch.Tensor | None]:
    """Derivatives of outputs of leaves that can be differentiated again: by the owners, and by what is given.

    There is an owner for each of the leaves, and for each of the cuts.
    """
    gradients = [one.detach().requires_grad_() if one.requires_grad else one for one in given]
    found = parts.run(outputs, gradients, create_graph=True)
    indices = [index for index, one in enumerate(found) if one is not None and one.requires_grad]
    joint = Joint(
        [one for one in found if one is not None and one.requires_grad],
        [*leaves, *(one for one in gradients if one.requires_grad)],
        cuts,
    )
    known = [*owners[: len(leaves)], *(one for one in given if one.requires_grad), *owners[len(leaves) :]]
    joined = joint.connected(known) if indices else []
    for index, one in zip(indices, joined, strict=True):
        found[index] = one
    return found


def leaves_for(inputs: list[torch.Tensor], and_hooked: bool = False) -> list[torch.Tensor]:
    """The inputs, with a leaf on the same memory in place of each that has a history (`and_hooked`: or hooks)."""
    found: dict[int, torch.Tensor] = {}
    for tensor in inputs:
        if tensor.requires_grad and (tensor.grad_fn is not None or (and_hooked and backward_hooks(tensor))):
            found.setdefault(id(tensor), tensor.detach().requires_grad_())
    return [found.get(id(tensor), tensor) for tensor in inputs]


def joined_outputs(
    outputs: list[torch.Tensor],
    owners: list[torch.Tensor],
    leaves: list[torch.Tensor],
    inputs: list[torch.Tensor],
    segments: list[Segment],
) -> list[torch.Tensor]:
    """The outputs, as results of the inputs instead of the leaves that stood for them."""
    originals = {id(leaf): tensor for leaf, tensor in zip(leaves, inputs, strict=True)}
    if segments:
        return _joined_apart(outputs, originals, segments)
    outputs = [originals.get(id(output), output) for output in outputs]
    indices = [index for index, output in enumerate(outputs) if output.grad_fn is not None and output.requires_grad]
    indices = [index for index in indices if all(outputs[index] is not tensor for tensor in inputs)]
    if indices:
        joint = Joint([outputs[index] for index in indices], owners)
        found = joint.connected([originals.get(id(owner), owner) for owner in owners])
        for index, output in zip(indices, found, strict=True):
            outputs[index] = output
    return outputs


def _joined_apart(
    outputs: list[torch.Tensor], originals: dict[int, torch.Tensor], segments: list[Segment]
) -> list[torch.Tensor]:
    """Adds a node for each segment, where the gradients of its outputs arrive."""
    found = [originals.get(id(output), output) for output in outputs]
    for segment in reversed(segments):
        owners = list({id(owner): owner for owner in segment.owners}.values())
        cuts = list(dict.fromkeys(segment.cuts))
        joint = Joint([outputs[index] for index in segment.outputs], owners, [outputs[index] for index in cuts])
        known = [*(originals.get(id(owner), owner) for owner in owners), *(found[index] for index in cuts)]
        for index, output in zip(segment.outputs, joint.connected(known), strict=True):
            found[index] = output
    return found
