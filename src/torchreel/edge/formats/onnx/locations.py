"""Where an ONNX node stands in the PyTorch program that it was exported from, by what the exporter noted of it."""

from __future__ import annotations

import ast

from torchreel.edge.formats.adapter import Location, TensorType
from torchreel.edge.formats.onnx.graph import Graph, Node
from torchreel.edge.formats.tracebacks import frames_of

_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASSES = "pkg.torch.onnx.class_hierarchy"
_STACK = "pkg.torch.onnx.stack_trace"
_RULES = "pkg.onnxscript.rewriter.rule_name"
# A list of names is short; what is longer is no list that the exporter wrote.
_LONGEST_LIST = 65536


def is_noted(node: Node) -> bool:
    """Whether the exporter noted where the node stands."""
    return _SCOPES in node.properties or _STACK in node.properties


class NodeLocations:
    """The locations of a model's nodes, each read once, however often the node is run."""

    def __init__(self, model: Graph) -> None:
        self._weights = model.weights
        self._found: dict[int, Location | None] = {}

    def location(self, node: Node) -> Location | None:
        """Where the node stands, if the exporter said so. The model keeps its nodes: an identity is a name of one."""
        if id(node) not in self._found:
            weight = self._weights.get(node.inputs[1]) if len(node.inputs) > 1 else None
            self._found[id(node)] = location_of_node(node, weight)
        return self._found[id(node)]


def location_of_node(node: Node, weight: TensorType | None = None) -> Location | None:
    """The location of a node. If its module was lost, the name of its weight tells it."""
    modules, frames = _modules(node), frames_of(node.properties.get(_STACK, ""))
    if not modules and not frames:
        return None
    location = Location(modules, frames)
    is_folded = "FuseBatchNorm" in node.properties.get(_RULES, "") and len(node.inputs) > 1
    return _convolution(location, node.inputs[1], weight) if is_folded and weight is not None else location


def _modules(node: Node) -> tuple[tuple[str, str], ...]:
    """The last of the names is the op's own, and so is the last of the classes."""
    paths = _names(node.properties.get(_SCOPES, ""))[:-1]
    classes = _names(node.properties.get(_CLASSES, ""))[:-1]
    if len(paths) != len(classes):
        return ()
    return tuple((path, kind.rpartition(".")[2]) for path, kind in zip(paths, classes, strict=True))


def _names(text: str) -> list[str]:
    """A list of texts, as Python writes it. Nothing is executed."""
    if len(text) > _LONGEST_LIST:
        return []
    try:
        names = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def _convolution(norm: Location, name: str, weight: TensorType) -> Location:
    """The exporter folds a normalisation into the convolution before it, and notes the normalisation's location alone.

    The weight keeps the convolution's name: features.0.conv.weight belongs to features.0.conv. Of the lines those are
    kept that lead to the normalisation, and not the one within it.
    """
    owner = name.rpartition(".")[0]
    around = tuple((path, kind) for path, kind in norm.modules if not path or owner.startswith(path + "."))
    if not owner or not around:
        return norm
    is_within = "BatchNorm" in norm.modules[-1][1] and len(norm.frames) > 1
    return Location((*around, (owner, f"Conv{len(weight.sizes) - 2}d")), norm.frames[1:] if is_within else norm.frames)
