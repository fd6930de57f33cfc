"""A program as a torch.fx.GraphModule: a graph that other tools look at, change and run.

The nodes are the ops of the tape, in its order, in place where they were in place. The module's code runs them below
autograd. torch.fx.Interpreter runs nodes, not code, and a pickled module forgets this: call them under torch.no_grad().
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx.graph import CodeGen

from torchreel.errors import TapeError
from torchreel.program.model import OPAQUE, Object, Program
from torchreel.program.query.source_frames import source_line
from torchreel.tape import graph_functions
from torchreel.tape.transform.graph_builder import GraphBuilder


def graph_module(program: Program, tensors: Mapping[int, torch.Tensor]) -> torch.fx.GraphModule:
    """The program as a graph. `tensors` are those of all slots that no op made, but not of inputs."""
    _refuse(program)
    graph = torch.fx.Graph()
    graph.set_codegen(_BelowAutograd())
    root = GraphBuilder(program, tensors, graph).build()
    graph.lint()
    return torch.fx.GraphModule(root, graph, "Tape")


class _BelowAutograd(CodeGen):  # type: ignore[misc]
    """The usual code, below autograd."""

    def gen_fn_def(self, *args: Any, **kwargs: Any) -> str:
        return f"@below_autograd\n{super().gen_fn_def(*args, **kwargs)}"

    def additional_globals(self) -> list[tuple[str, Any]]:
        return [*super().additional_globals(), ("below_autograd", graph_functions.below_autograd)]


def _refuse(program: Program) -> None:
    for op in program.ops:
        values = [part for value in op.args for part in (value if isinstance(value, list) else [value])]
        if op.name == OPAQUE:
            raise TapeError(
                f"The tape holds a region that torch compiled ({source_line(program, op)}), so it has no graph: "
                "trace the function without torch.compile."
            )
        for value in values:
            if isinstance(value, Object):
                raise TapeError(
                    f"{op.name} takes {program.objects[value.index]} ({source_line(program, op)}), which a graph "
                    "cannot hold: look at the tape with python() instead."
                )
