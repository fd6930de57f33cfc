"""A backward that is not the recorded one: the function runs again, eagerly, and autograd does the rest.

Some outputs have no gradient this time, or the gradient is to be differentiated again: a graph knows one backward only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchreel.graphs.joined import derivatives_again, leaves_for
from torchreel.graphs.recording import Recording
from torchreel.graphs.state import State
from torchreel.tape.quiet import quietly
from torchreel.tape.structure import Structure


def derivatives_of(
    function: Callable[..., Any],
    recording: Recording,
    call: tuple[Any, ...],
    gradients: list[torch.Tensor | None],
    create_graph: bool,
) -> list[torch.Tensor | None]:
    args, kwargs, drawn = call
    derivatives = recording.derivatives
    assert derivatives is not None
    structure = Structure((args, kwargs))
    leaves = leaves_for(structure.tensors)  # the backward ends at the inputs, whatever made them
    args, kwargs = structure.rebuild(leaves)
    owners = [_owner(recording, slot, leaves) for slot in derivatives.owner_slots]
    state = State(recording)  # what the forward wrote, it has written already
    if drawn is not None:
        with quietly():
            torch.set_rng_state(drawn)
    try:
        with torch.enable_grad():
            outputs = Structure(function(*args, **kwargs)).tensors
    finally:
        state.put_back()
    wanted = [
        (outputs[place], gradient)
        for place, gradient in zip(derivatives.outputs, gradients, strict=True)
        if gradient is not None
    ]
    if not wanted:
        return [None] * len(owners)
    tensors, given = zip(*wanted, strict=True)
    if not create_graph:
        return list(torch.autograd.grad(tensors, owners, given, allow_unused=True))
    originals = [_owner(recording, slot, structure.tensors) for slot in derivatives.owner_slots]
    return derivatives_again(list(tensors), owners, originals, list(given))


def _owner(recording: Recording, slot: int, inputs: list[torch.Tensor]) -> torch.Tensor:
    for each, tensor in zip(recording.program.inputs, inputs, strict=True):
        if each.slot == slot:
            return tensor
    return recording.parts.tensors[slot]
