"""An ONNX model's graph, as far as its profile needs it: its nodes, what they make, and the sizes of its weights."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchreel.edge.formats.adapter import TensorType
from torchreel.edge.formats.onnx.profile import dtype_name


@dataclass(frozen=True)
class Node:
    """One node. An input that is left out has an empty name."""

    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, int | str]
    """Those that are one number or one text."""
    properties: dict[str, str]
    """What the exporter noted of it."""


@dataclass
class Graph:
    """The nodes of a model, those of branches and bodies too."""

    nodes: list[Node] = field(default_factory=list)
    weights: dict[str, TensorType] = field(default_factory=dict)
    named: dict[str, Node] = field(default_factory=dict)
    makers: dict[str, Node] = field(default_factory=dict)
    """Of each value, the node that makes it."""
    readers: dict[str, list[Node]] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        self.named.setdefault(node.name, node)
        for value in filter(None, node.outputs):
            self.makers.setdefault(value, node)
        for value in filter(None, node.inputs):
            self.readers.setdefault(value, []).append(node)


def can_read() -> bool:
    return importlib.util.find_spec("onnx") is not None


def read_graph(source: Path | bytes) -> Graph | None:
    """The graph of a model; None if the package onnx is missing, or the model is not in its format."""
    if not can_read():
        return None
    try:
        onnx = importlib.import_module("onnx")
        if isinstance(source, bytes):
            model = onnx.load_model_from_string(source)
        else:
            # Sizes are in the file itself: the weights beside it need not be read.
            model = onnx.load(str(source), load_external_data=False)
    except Exception:
        # Whatever protobuf raises for a file in another format, such as ONNX Runtime's own: that one runs all the same.
        return None
    graph = Graph()
    _add(graph, model.graph, onnx)
    return graph


def _add(graph: Graph, proto: Any, onnx: Any) -> None:
    for weight in proto.initializer:
        graph.weights[weight.name] = TensorType(tuple(weight.dims), _dtype(weight.data_type, onnx))
    for node in proto.node:
        graph.add(_node(node))
        for inner in _inner_graphs(node):
            _add(graph, inner, onnx)


def _node(proto: Any) -> Node:
    attributes: dict[str, int | str] = {}
    for attribute in proto.attribute:
        if attribute.type == attribute.INT:
            attributes[attribute.name] = attribute.i
        elif attribute.type == attribute.STRING:
            attributes[attribute.name] = attribute.s.decode(errors="replace")
    return Node(
        proto.name,
        proto.op_type,
        proto.domain,
        tuple(proto.input),
        tuple(proto.output),
        attributes,
        {entry.key: entry.value for entry in proto.metadata_props},
    )


def _inner_graphs(proto: Any) -> Iterator[Any]:
    for attribute in proto.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _dtype(number: int, onnx: Any) -> str:
    """As torch names it: FLOAT is float32."""
    kinds = onnx.TensorProto.DataType
    return dtype_name(kinds.Name(number).lower()) if number in kinds.values() else ""
