"""A file of an execution trace -> its nodes: of schema 1.0.1, and of those from 1.0.3-chakra on, with attributes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from torchreel._collector import collector_paused
from torchreel.errors import CorruptTraceError, NotATraceError
from torchreel.ingest.kineto.grammar import Grammar, Losses
from torchreel.ingest.kineto.pieces import Pieces
from torchreel.ingest.kineto.unpacking import Progress, Unpacking, opened

_OVERLOAD = re.compile(r"[\w:]+\.(\w+)\(")


class _Node(msgspec.Struct, gc=False):
    """A node of any schema."""

    id: Any = None
    name: Any = None
    rf_id: Any = None
    op_schema: Any = None
    inputs: Any = None
    input_shapes: Any = None
    input_types: Any = None
    outputs: Any = None
    output_shapes: Any = None
    output_types: Any = None
    attrs: Any = None


# Attributes are objects in lists, too, and have names: nodes have an id beside it.
NODES = Grammar(b"nodes", rb'\{\s*(?:"name"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*)?"id"\s*:', _Node)


@dataclass
class Node:
    """One call: what it was called with and what it gave."""

    name: str
    overload: str
    dims: list[Any]
    types: list[Any]
    values: list[Any]
    output_dims: list[Any]
    output_types: list[Any]


@dataclass
class ExecutionTrace:
    """One file, read. `nodes` has calls by the number of their RecordFunction."""

    path: Path
    pid: int | None
    source: dict[str, Any]
    nodes: dict[int, Node] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)
    problem: str | None = None


def read_execution_trace(path: str | os.PathLike[str], progress: Progress | None = None) -> ExecutionTrace:
    """The nodes of an execution trace, plain or compressed with gzip."""
    path = Path(path)
    with collector_paused(), opened(path) as (file, size):
        unpacking = Unpacking(file, size, progress)
        pieces = Pieces(unpacking.blocks(), NODES)
        nodes: dict[int, Node] = {}
        for part in pieces:
            for each in part:
                _add(each, nodes)
    if not pieces.found:
        raise NotATraceError(f"{path} is not an execution trace: it has no list of nodes.")
    if not nodes:
        raise CorruptTraceError(f"No call of {path} can be read: copy it again from where it was made.")
    top = pieces.top
    pid = top.get("pid")
    source = {"file": path.name, "kind": "execution trace", "size": unpacking.size, "sha256": unpacking.sha256}
    source |= {name: value for name, value in top.items() if name not in (*source, "nodes")}
    problem = unpacking.problem or ("it ends early" if pieces.cut_off else None)
    return ExecutionTrace(path, pid if type(pid) is int else None, source, nodes, pieces.losses, problem)


def _add(node: _Node, nodes: dict[int, Node]) -> None:
    """Note a node that is a call."""
    attributes = _attributes(node.attrs)
    number = node.rf_id if node.rf_id is not None else attributes.get("rf_id")
    if type(number) is not int or number <= 0 or type(node.name) is not str:
        return
    schema = node.op_schema if node.op_schema is not None else attributes.get("op_schema")
    overload = _OVERLOAD.match(schema) if type(schema) is str else None
    values, dims, types = _parts(node.inputs, node.input_shapes, node.input_types)
    _, output_dims, output_types = _parts(node.outputs, node.output_shapes, node.output_types)
    nodes[number] = Node(node.name, overload[1] if overload else "", dims, types, values, output_dims, output_types)


def _attributes(attrs: Any) -> dict[str, Any]:
    rows = attrs if type(attrs) is list else []
    return {row["name"]: row.get("value") for row in rows if type(row) is dict and type(row.get("name")) is str}


def _parts(values: Any, shapes: Any, types: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Values, shapes and types, which later schemas keep in one object."""
    if type(values) is dict:
        values, shapes, types = values.get("values"), values.get("shapes"), values.get("types")
    first, second, third = (each if type(each) is list else [] for each in (values, shapes, types))
    return first, second, third
