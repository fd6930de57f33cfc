"""What a replay returns: the function's results, built again around new tensors."""

from __future__ import annotations

from typing import Any

import torch

from torchreel.program.model import Complex, Program, Ref, Tree
from torchreel.tape.structure import Structure


class Outputs:
    def __init__(self, program: Program, traced: Structure | None) -> None:
        self._tree = program.outputs
        self._traced = traced
        self.slots = list(_slots(program.outputs))  # of the tensors, in the order of the tree

    def rebuild(self, values: list[torch.Tensor]) -> Any:
        if self._traced is not None:
            by_slot = dict(zip(self.slots, values, strict=True))
            order = self._traced.slots
            return self._traced.rebuild(self._traced.formed([by_slot[slot] for slot in order]))
        return _built(self._tree, iter(values))


def _slots(tree: Tree) -> Any:
    if isinstance(tree.leaf, Ref):
        yield tree.leaf.slot
    for part in tree.parts:
        yield from _slots(part)


def _built(tree: Tree, values: Any) -> Any:
    """The outputs of a loaded tape, in plain containers."""
    if tree.kind == "leaf":
        if isinstance(tree.leaf, Ref):
            return next(values)
        return complex(tree.leaf.real, tree.leaf.imag) if isinstance(tree.leaf, Complex) else tree.leaf
    parts = [_built(part, values) for part in tree.parts]
    if tree.kind == "dict":
        return dict(zip(tree.keys, parts, strict=True))
    return tuple(parts) if tree.kind == "tuple" else parts
