"""Tensors that a function returns or leaves and that are more than their slots say: aliases of others, new leaves."""

from __future__ import annotations

from typing import Any

import torch

from torchreel.tape.structure import Structure


class ResultForms:
    """Made when a trace has ended, of the tensors that were there before it."""

    def __init__(self, capture: Any, inputs: list[torch.Tensor]) -> None:
        outside = capture.tensors_from_outside()
        self._slots = {*capture.input_slots, *(slot for slot, _ in outside)}
        self._known = {id(tensor) for tensor in (*inputs, *(tensor for _, tensor in outside))}

    def note(self, structure: Structure, slots: list[int]) -> None:
        """Note the forms of a structure's tensors."""
        for index, (tensor, slot) in enumerate(zip(structure.tensors, slots, strict=True)):
            if slot in self._slots and id(tensor) not in self._known:
                structure.aliases.append(index)  # weight.detach() lies as the weight does, and is another tensor
            if tensor.is_inference() and tensor.layout is torch.strided and id(tensor) not in self._known:
                structure.inference.append(index)
            elif tensor.is_leaf and tensor.requires_grad and id(tensor) not in self._known:
                structure.leaves.append(index)
