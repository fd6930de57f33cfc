"""Which ops of a graph of torch.compile cannot be in a graph of ours, and the order in which there are fewest parts."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from torchreel._torch.dispatch import HigherOrderOperator, OpOverload, schema_of

_PLACES = ("placeholder", "get_attr", "output")  # nodes that are no ops
_NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


def reasons(graph: Graph) -> dict[Node, str]:
    """Ops that have to run eagerly, each with why, as the end of a sentence that begins with the op."""
    found = {node: _reason(node) for node in graph.nodes if node.op not in _PLACES and not _is_carried(node)}
    return {node: why for node, why in found.items() if why}


def levels(graph: Graph, eager: dict[Node, str]) -> dict[Node, int]:
    """The part of each op. Even parts are graphs, odd ones run eagerly, and they run in the order of their numbers.

    Each op goes into the earliest part that it may: what does not need the result of an eager op is before it.
    """
    found: dict[Node, int] = {}
    last = 0
    after_write = 0  # what follows an op that writes stays behind it
    in_order = 0  # the part of the last op whose order others can see
    for node in graph.nodes:
        if node.op in _PLACES:
            continue
        least = max((found.get(each, 0) for each in node.all_input_nodes), default=0)
        least = max(least, after_write)
        if _writes(node):
            least = max(least, last)
        if _has_order(node):
            least = max(least, in_order)
        if not _is_carried(node):
            least += (least % 2 == 1) != (node in eager)
        found[node] = least
        last = max(last, least)
        if _writes(node):
            after_write = least
        if _has_order(node):
            in_order = least
    return found


def _reason(node: Node) -> str:
    op = node.target
    if isinstance(op, OpOverload):
        if torch.Tag.cudagraph_unsafe in op.tags:
            return "is marked as unsafe for graphs (torch.Tag.cudagraph_unsafe)"
        if torch.Tag.inplace_view in op.tags:
            return "changes the shape or the memory of a tensor in place"
    given = [value for each in node.all_input_nodes for value in _values(each.meta.get("val"))]
    gives = list(_values(node.meta.get("val")))
    if any(map(_is_unknown, given)):
        return "takes sizes or numbers that depend on values"
    if any(map(_is_unknown, gives)):
        return "gives a number or a size that depends on values"
    for value in (*given, *gives):
        if not isinstance(value, torch.Tensor):
            continue
        if value.layout != torch.strided or value.is_quantized or value.is_conj() or value.is_neg():
            return "has a tensor that is sparse, quantized or conjugated"
        if value.device.type != "cpu":
            return "has a tensor that is not on the CPU"
    return ""


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for each in value:
            yield from _values(each)
    elif value is not None:
        yield value


def _is_unknown(value: Any) -> bool:
    """Whether its size, or itself if it is a number, is known only when it has been computed."""
    if isinstance(value, torch.Tensor) and value.layout != torch.strided:
        return False
    return isinstance(value, (torch.Tensor, *_NUMBERS)) and bool(free_unbacked_symbols(value))


def _is_carried(node: Node) -> bool:
    """What costs nothing is done where its operands are: a part of a result, arithmetic of sizes."""
    if node.target is operator.getitem:
        return True
    if isinstance(node.target, HigherOrderOperator):
        return False
    return isinstance(node.meta.get("val"), _NUMBERS) and not _reads_tensor(node)


def _reads_tensor(node: Node) -> bool:
    """More of it than its sizes."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.data_dependent_output in tags or torch.Tag.cudagraph_unsafe in tags


def _writes(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and schema_of(node.target).is_mutable


def _has_order(node: Node) -> bool:
    """Whether its order among others of this kind is seen: it draws, talks to other ranks, or only has an effect."""
    op = node.target
    if not isinstance(op, OpOverload):
        return isinstance(op, HigherOrderOperator)
    draws = torch.Tag.nondeterministic_seeded in op.tags
    return draws or "c10d" in op.namespace or not schema_of(op).returns
