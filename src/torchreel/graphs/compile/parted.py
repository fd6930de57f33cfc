"""A graph of torch.compile that runs in parts: graphs of ours, and between them what runs eagerly."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, GraphModule, Node, map_arg

from torchreel._torch.dispatch import OpOverload
from torchreel.graphs.compile.partition import levels, reasons
from torchreel.graphs.record.generated_lines import line_of

Ready = Callable[[GraphModule, Sequence[Any], str], Callable[..., Any]]  # part, examples of inputs, name


@dataclass(frozen=True)
class _Part:
    run: Callable[..., Any]
    takes: list[str]
    gives: list[str]
    over: list[str]  # what nobody needs after it


class Parted:
    """Called as the whole is."""

    def __init__(self, module: GraphModule, name: str, ready: Ready) -> None:
        graph = module.graph
        eager = reasons(graph)
        found = levels(graph, eager)
        self._takes = [node.name for node in graph.nodes if node.op == "placeholder"]
        (output,) = graph.find_nodes(op="output")
        self._gives = output.args[0]
        constants = [each for each in output.all_input_nodes if each.op == "get_attr"]
        self._constants = {each.name: operator.attrgetter(str(each.target))(module) for each in constants}
        members: dict[int, list[Node]] = {}
        for node, level in found.items():
            members.setdefault(level, []).append(node)
        last = {each.name: level for level in sorted(members) for node in members[level] for each in _tensors_of(node)}
        kept = {each.name for each in output.all_input_nodes}
        count = sum(_has_ops(nodes) for level, nodes in members.items() if level % 2 == 0)
        number = 0
        self._parts: list[_Part] = []
        for level in sorted(members):
            nodes = members[level]
            part, takes, gives = _cut(module, nodes, kept)
            run: Callable[..., Any] = part
            if level % 2 == 0 and _has_ops(nodes):
                number += 1
                examples = [each.meta.get("val") for each in part.graph.find_nodes(op="placeholder")]
                run = ready(part, examples, f"{name}, graph {number} of {count}")
            over = [each for each, when in last.items() if when == level and each not in kept]
            self._parts.append(_Part(run, takes, gives, over))
        self.remarks = [f"{name} runs as {count} graphs, with these ops between them:"]
        self.remarks += [f"  {node.target} {why}{_in_brackets(line_of(node))}" for node, why in eager.items()]

    def __call__(self, *args: Any) -> Any:
        values = {**self._constants, **dict(zip(self._takes, args, strict=True))}
        for part in self._parts:
            made = part.run(*[values[name] for name in part.takes])
            values.update(zip(part.gives, made, strict=True))
            for name in part.over:
                values.pop(name, None)
        return map_arg(self._gives, lambda node: values[node.name])


def is_whole(module: GraphModule) -> bool:
    """Whether all of it can be one graph."""
    return not reasons(module.graph)


def _cut(module: GraphModule, nodes: list[Node], kept: set[str]) -> tuple[GraphModule, list[str], list[str]]:
    """Some ops as a module that returns a tuple, with the names of its inputs and outputs."""
    inside = set(nodes)
    graph = Graph()
    copies: dict[Node, Node] = {}
    outside = list(dict.fromkeys(each for node in nodes for each in _tensors_of(node) if each not in inside))
    for each in outside:
        copies[each] = graph.placeholder(each.name)
        copies[each].meta = each.meta
    for each in dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each.op == "get_attr"):
        copies[each] = graph.node_copy(each)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    gives = [node for node in nodes if node.name in kept or any(user not in inside for user in node.users)]
    graph.output(tuple(copies[node] for node in gives))
    return GraphModule(module, graph), [each.name for each in outside], [node.name for node in gives]


def _tensors_of(node: Node) -> list[Node]:
    """The inputs of a node. Constants of the module are not among them: they move with the node."""
    return [each for each in node.all_input_nodes if each.op != "get_attr"]


def _has_ops(nodes: list[Node]) -> bool:
    return any(isinstance(node.target, OpOverload) for node in nodes)


def _in_brackets(line: str) -> str:
    return f" ({line})" if line else ""
