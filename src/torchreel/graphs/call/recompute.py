"""A backward that is not the recorded one: the function runs again, eagerly, and autograd does the rest.

Some outputs have no gradient this time, or the gradient is to be differentiated again: a graph knows one backward only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchreel import _graphs
from torchreel._torch.dispatch import disable_dispatch_modes
from torchreel.errors import GraphError
from torchreel.graphs.call.state import State
from torchreel.graphs.record.derivatives import Segment
from torchreel.graphs.record.gradient_parts import GradientParts
from torchreel.graphs.record.joined import derivatives_again, leaves_for
from torchreel.graphs.record.recorded_call import RecordedCall
from torchreel.tape.quiet import quietly
from torchreel.tape.structure import Structure


def derivatives_of(
    function: Callable[..., Any],
    recording: RecordedCall,
    call: tuple[Any, ...],
    gradients: list[torch.Tensor | None],
    create_graph: bool,
    segment: Segment,
    cuts: list[torch.Tensor],
) -> list[torch.Tensor | None]:
    """The derivatives of one segment of the backward. Those by outputs of other segments go to `cuts`."""
    args, kwargs, drawn = call
    structure = Structure((args, kwargs))
    leaves = leaves_for(structure.tensors)  # the backward ends at the inputs, whatever made them
    args, kwargs = structure.rebuild(leaves)
    slots = list(dict.fromkeys(segment.owner_slots))
    owners = [recording.owner(slot, leaves) for slot in slots]
    state = State(recording)  # what the forward wrote, it has written already
    if drawn is not None:
        with quietly():
            torch.set_rng_state(drawn)
    enabled, dtype = recording.autocast
    frozen = [owner for owner in owners if not owner.requires_grad]  # since the forward
    for owner in frozen:
        owner.requires_grad_(True)
    try:
        with torch.enable_grad(), torch.autocast("cpu", dtype, enabled):
            _check_that_nothing_changed(recording)
            # Modes around the backward see its ops alone.
            with disable_dispatch_modes():
                outputs = Structure(function(*args, **kwargs), unique=True).tensors
        state.put_back()
        originals = [recording.owner(slot, structure.tensors) for slot in slots]
        originals += dict(zip(segment.cuts, cuts, strict=True)).values()
        return _derivatives(recording, segment, outputs, owners, originals, gradients, create_graph)
    finally:
        state.put_back()
        for owner in frozen:
            owner.requires_grad_(False)


def _derivatives(
    recording: RecordedCall,
    segment: Segment,
    outputs: list[torch.Tensor],
    owners: list[torch.Tensor],
    originals: list[torch.Tensor],
    gradients: list[torch.Tensor | None],
    create_graph: bool,
) -> list[torch.Tensor | None]:
    """The derivatives of the outputs by leaves that stand for the originals. Parts of one gradient are not added."""
    wanted = [
        (outputs[index], gradient)
        for index, gradient in zip(segment.outputs, gradients, strict=True)
        if gradient is not None
    ]
    if not wanted:
        return [None] * len(segment.derivative_slots)
    slots, cuts = list(dict.fromkeys(segment.owner_slots)), list(dict.fromkeys(segment.cuts))
    ends = [outputs[index] for index in cuts]
    parts = GradientParts([outputs[index] for index in segment.outputs], owners, ends)
    known = [("owner", slot) for slot in slots] + [("cut", index) for index in cuts]
    recorded = [("owner", slot) for slot in segment.owner_slots] + [("cut", index) for index in segment.cuts]
    if [known[index] for index in parts.indices] != recorded:
        raise GraphError(
            f"A backward of {recording.program.provenance.function} is not the recorded one, and the function, which "
            "runs again for it, uses its inputs and parameters otherwise than it did in the recorded call."
        )
    tensors, given = (list(each) for each in zip(*wanted, strict=True))
    if not create_graph:
        return parts.run(tensors, given)
    return derivatives_again(parts, tensors, owners, originals, given, ends)


def _check_that_nothing_changed(recording: RecordedCall) -> None:
    """The function would do something else now than in the forward that this backward is of."""
    function = recording.program.provenance.function
    if recording.guards is not None and not recording.guards.native.hold_but_for_tensors():
        raise GraphError(
            f"A backward of {function} is not the recorded one (other outputs have gradients, they lie differently, or "
            f"create_graph=True), so that the function has to run again, and what it reads has changed since its "
            f"forward. {recording.guards.changed() or ''} Run the backward before the change."
        )
    if not _graphs.Modes.now().compute_as(recording.modes):
        raise GraphError(
            f"A backward of {function} is not the recorded one, so that the function has to run again, and modes of "
            "torch (threads, default dtype, deterministic algorithms) are others than in its forward."
        )
