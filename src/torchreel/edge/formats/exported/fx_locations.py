"""Where the lines of a graph module's generated code stand in the program that it was exported from.

A graph module runs Python that torch.fx wrote for it, one line for each node, in a file that exists in memory alone.
Each node carries what export saw: the user's own stack, and the modules that were being called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.fx import GraphModule, Node

from torchreel._torch.deployed import lines_of_nodes
from torchreel.edge.formats.adapter import Frame, Location
from torchreel.edge.formats.tracebacks import frames_of

_GENERATED = "<eval_with_key>"
# What PyTorch names as the class where it added a node of its own.
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"

Modules = tuple[tuple[str, str], ...]


class FxLocations:
    """The locations of all the lines of a graph module, and of the graph modules below it."""

    def __init__(self, module: GraphModule) -> None:
        self._locations: dict[tuple[str, int], Location] = {}
        # The branches of a condition know no modules: they have those of the node that takes the branch.
        inherited: dict[str, Modules] = {}
        for path, part in module.named_modules():
            if isinstance(part, GraphModule):
                self._add(part, inherited.get(path, ()))
                inherited.update(_modules_of_branches(path, part))

    def _add(self, module: GraphModule, inherited: Modules) -> None:
        code = type(module).forward.__code__
        nodes = list(module.graph.nodes)
        # torch.fx counts the lines from the one that says "def".
        for line, index in lines_of_nodes(module).items():
            if index is not None and index < len(nodes):
                location = location_of_node(nodes[index], inherited)
                if location is not None:
                    self._locations[code.co_filename, code.co_firstlineno + line] = location

    def location_of_line(self, file: str, line: int) -> Location | None:
        """The location of this line, if it is one of the module's and export knew it."""
        return self._locations.get((file, line))


def location_of_node(node: Node, inherited: Modules = ()) -> Location | None:
    # The one module that an exported graph calls checks its inputs: that is nowhere in the user's program.
    if node.op == "call_module":
        return None
    frames = frames_of_trace(node.meta.get("stack_trace"))
    modules = _modules(node.meta.get("nn_module_stack"))
    if not frames and not modules:
        return None
    return Location(modules or inherited, frames)


def frames_of_trace(trace: Any) -> tuple[Frame, ...]:
    """The text of a traceback, whose innermost frame comes last, as frames, whose innermost comes first."""
    if not isinstance(trace, str):
        return ()
    return tuple(frame for frame in frames_of(trace) if not frame.file.startswith(_GENERATED))


def _modules(stack: Any) -> Modules:
    modules = (_module(path, kind) for path, kind in (stack or {}).values())
    return tuple(module for module in modules if module[1] != _NO_MODULE)


def _module(path: str, kind: str | type) -> tuple[str, str]:
    """The class is a text if it was loaded from a file. A path that is called again has the call's number: layer@1."""
    name = kind if isinstance(kind, str) else kind.__qualname__
    return path.partition("@")[0], name.rpartition(".")[2]


def _modules_of_branches(path: str, module: GraphModule) -> Iterable[tuple[str, Modules]]:
    prefix = f"{path}." if path else ""
    for node in module.graph.nodes:
        if node.op == "get_attr":
            yield f"{prefix}{node.target}", _modules(node.meta.get("nn_module_stack"))
