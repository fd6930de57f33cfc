"""What the outputs of a recorded call are besides their values: views of what, of which mode, with a history or not."""

from __future__ import annotations

from typing import Any

import torch

from torchreel._torch.tensors import base_of, is_view
from torchreel.graphs.refusal import RefusedError
from torchreel.program.model import Program, Ref
from torchreel.program.query.writes import written_storages

_WITHOUT_VALUES = ("aten::empty", "aten::new_empty")
Alias = tuple[int, str, int, bool]  # index, "output", "input" or "own", index or slot, whether it is a view


class OutputFacts:
    """Facts about the tensors that a function has just returned."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._ids = [id(tensor) for tensor in tensors]
        self._bases = [id(base_of(tensor)) if is_view(tensor) else 0 for tensor in tensors]
        self._inference = [tensor.is_inference() for tensor in tensors]
        self._differentiable = [tensor.requires_grad and not tensor.is_leaf for tensor in tensors]
        self.with_history = [output for output, one in enumerate(self._differentiable) if one]

    def check(self, program: Program, slots: list[int], modes: Any) -> None:
        """Raises RefusedError for outputs that a replay cannot give as eager does."""
        if not modes.grad and self.with_history:
            raise RefusedError("returns a tensor with a history, and is called without gradients")
        written = written_storages(program)
        made = {
            program.slots[part.slot].storage
            for op in program.ops
            for part in op.results
            if isinstance(part, Ref) and op.name.startswith(_WITHOUT_VALUES)
        }
        if made and torch.are_deterministic_algorithms_enabled():
            raise RefusedError("makes memory without values, which deterministic algorithms fill")
        given = [program.slots[slot] for slot in slots if slot >= 0]
        if any(slot.bytes > 0 and slot.storage in made - written for slot in given):
            raise RefusedError("returns memory that no op has written to")

    def in_other_mode(self, modes: Any, known: set[int]) -> list[tuple[int, bool]]:
        """Outputs that are inference tensors though the call is not in that mode, or the reverse.

        `known` are ids of tensors that were there before, and are given as they are.
        """
        return [
            (output, one)
            for output, one in enumerate(self._inference)
            if one != modes.inference and self._ids[output] not in known
        ]

    def aliases(
        self, program: Program, slots: list[int], inputs: list[torch.Tensor], own: dict[int, torch.Tensor]
    ) -> list[Alias]:
        """Outputs on the memory of an input, of a tensor of the function's own, or of an output before."""
        others: dict[int, list[tuple[str, int, int]]] = {}  # by storage
        for position, (each, tensor) in enumerate(zip(program.inputs, inputs, strict=True)):
            others.setdefault(program.slots[each.slot].storage, []).append(("input", position, id(tensor)))
        for slot, tensor in own.items():
            others.setdefault(program.slots[slot].storage, []).append(("own", slot, id(tensor)))
        found: list[Alias] = []
        for output, slot in enumerate(slots):
            if slot < 0 or program.slots[slot].layout != "strided":
                continue
            known = others.setdefault(program.slots[slot].storage, [])
            if known and all(number != self._ids[output] for _, _, number in known):
                base = next((one for one in known if one[2] == self._bases[output]), None)
                kind, index, _ = base or known[0]
                shares_base = (
                    kind == "output" and self._bases[output] != 0 and self._bases[index] == self._bases[output]
                )
                found.append((output, kind, index, base is not None or shares_base))
            known.append(("output", output, self._ids[output]))
        return found
