"""The user's own lines, for ops in code that torch.fx generated."""

from __future__ import annotations

import linecache
import re

from torch.fx import GraphModule, Node

from torchreel.program.model import Frame, Op, Program
from torchreel.program.query.source_frames import frame_line, frames_of, is_the_users, source_line

_GENERATED = "<eval_with_key>"
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n?(?: *(?!File)(\S.*))?')

NodeLines = dict[str, str]  # by the name of a node


def node_lines(module: GraphModule) -> NodeLines:
    """The source lines of a module's nodes, as far as they are known."""
    return {node.name: line for node in module.graph.nodes if (line := line_of(node))}


def line_of(node: Node) -> str:
    """`train.py:31 in step: loss = model(x)`; empty where Dynamo did not note it."""
    found = [Frame(file, int(line), function, text) for file, line, function, text in _traced(node)]
    own = [frame for frame in found if is_the_users(frame.file)] or found
    return frame_line(own[-1], re.split(r"[/\\]", own[-1].file)[-1]) if own else ""


def op_line(program: Program, op: Op, lines: NodeLines) -> str:
    """Like source_line(), but for ops that generated code calls: the line of the user's program."""
    for frame in frames_of(program, op) if lines else ():
        if frame.file.startswith(_GENERATED):
            text = frame.text or linecache.getline(frame.file, frame.line)
            return lines.get(text.partition("=")[0].strip(), "")
    return source_line(program, op)


def _traced(node: Node) -> list[tuple[str, str, str, str]]:
    return _FRAME.findall(node.meta.get("stack_trace") or "")
