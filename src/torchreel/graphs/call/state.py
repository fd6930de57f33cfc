"""What a recorded function writes beside its outputs, kept to be put back: tensors, gradients, the random generator."""

from __future__ import annotations

import torch

from torchreel._torch.autograd import set_versions
from torchreel._torch.tensors import version_of
from torchreel.graphs.record.recorded_call import RecordedCall
from torchreel.program.query.writes import written_storages
from torchreel.tape.quiet import quietly


class State:
    """All that a replay writes, as it is now: tensors, gradients, states of generators."""

    def __init__(self, recording: RecordedCall, inputs: list[torch.Tensor] | None = None) -> None:
        program = recording.program
        written = written_storages(program)
        taken = {each.slot for each in program.inputs}
        owners = {binding.owner for binding in program.bindings}
        own = [
            tensor
            for slot, tensor in recording.parts.tensors.items()
            if slot not in taken and (program.slots[slot].storage in written or slot in owners)
        ]
        given = [
            tensor
            for each, tensor in zip(program.inputs, inputs or [], strict=False)
            if program.slots[each.slot].storage in written or each.slot in owners
        ]
        self.tensors = [*own, *given]
        with quietly():
            self.values = [tensor.detach().clone() for tensor in self.tensors]
            self.gradients = [tensor.grad if tensor.is_leaf else None for tensor in self.tensors]
            self.gradient_values = [None if one is None else one.detach().clone() for one in self.gradients]
            self._versioned = [one for one in (*self.tensors, *self.gradients) if one is not None]
            self._versioned = [one for one in self._versioned if not one.is_inference()]
            self._versions = [version_of(one) for one in self._versioned]
            # Only of a function that draws: others may do so meanwhile, in other threads.
            self.generators = recording.generators()
            self.drawn = [generator.get_state() for generator in self.generators]

    def put_back(self) -> None:
        with quietly():
            for tensor, value in zip(self.tensors, self.values, strict=True):
                tensor.detach().copy_(value)
            for tensor, gradient, value in zip(self.tensors, self.gradients, self.gradient_values, strict=True):
                if tensor.is_leaf and tensor.requires_grad:
                    tensor.grad = gradient
                if gradient is not None and value is not None:
                    gradient.detach().copy_(value)
            set_versions(tuple(self._versioned), tuple(self._versions))
            for generator, state in zip(self.generators, self.drawn, strict=True):
                generator.set_state(state)
