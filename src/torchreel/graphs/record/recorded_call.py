"""One call of a function, recorded: what it gave, and how to do the same again without Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from torchreel.graphs.record.derivatives import Derivatives
from torchreel.graphs.record.generated_lines import NodeLines, op_line
from torchreel.guards.python_guards import PythonGuards
from torchreel.program.model import Program, Ref, Tree
from torchreel.tape.capture.captured import Parts

if TYPE_CHECKING:
    from torchreel.graphs.inductor.lowering import Lowering


@dataclass
class RecordedCall:
    """An entry of the cache, and what people may want to know of it."""

    entry: Any  # _graphs.CacheEntry
    number: int
    signature: str
    program: Program
    parts: Parts
    guards: PythonGuards | None  # None where another guards the function, or its author vouches for it
    derivatives: Derivatives | None
    modes: Any  # _graphs.Modes
    autocast: tuple[bool, torch.dtype]
    lowering: Lowering | None = None  # where Inductor is asked for kernels
    given_generators: list[torch.Generator] = field(default_factory=list)  # that its ops were given
    lines: NodeLines = field(default_factory=dict)  # of the program, where the function was generated

    def line(self, op: int) -> str:
        """The source line of an op, or nothing."""
        ops = self.program.ops
        return op_line(self.program, ops[op], self.lines) if 0 <= op < len(ops) else ""

    def output_line(self) -> str:
        """The source line that made the first output, or the function."""
        return output_line(self.program, self.lines) or self.program.provenance.function

    def generators(self) -> list[torch.Generator]:
        """The generators that it draws from and did not make itself."""
        default = [torch.default_generator] if self.entry.replay.draws else []
        return [*default, *self.given_generators]

    def owner(self, slot: int, inputs: list[torch.Tensor]) -> torch.Tensor:
        """The tensor of a slot that no op made, in a call with these inputs."""
        for each, tensor in zip(self.program.inputs, inputs, strict=True):
            if each.slot == slot:
                return tensor
        return self.parts.tensors[slot]

    def op_name(self, op: int) -> str:
        return self.program.ops[op].name if 0 <= op < len(self.program.ops) else "an op"


def output_line(program: Program, lines: NodeLines) -> str:
    """The line of the last op that made an output."""
    refs = set(_refs(program.outputs))
    made = [op for op in program.ops if refs & {each.slot for each in op.results if isinstance(each, Ref)}]
    return next(filter(None, (op_line(program, op, lines) for op in reversed(made))), "")


def _refs(tree: Tree) -> Iterator[int]:
    if isinstance(tree.leaf, Ref):
        yield tree.leaf.slot
    for part in tree.parts:
        yield from _refs(part)
