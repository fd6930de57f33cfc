"""The nodes that ONNX Runtime runs, linked to the nodes of the model's file.

When a session is made, nodes are fused, split, renamed and laid out anew, and what the exporter noted of them is lost.
What survives is a name, a part of one, or the name of the value that is made in the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from torchreel.edge.formats.adapter import TensorType
from torchreel.edge.formats.onnx.graph import Graph, Node

# Convolutions whose channels are laid out in blocks are named for the value that they make.
_BLOCKED = "_nchwc"
# No fusion takes in a longer chain than this.
_LONGEST_FUSION = 8


class Links:
    """From the name of a node that was run to the nodes that are known of it.

    `model` is the graph of the model's file, `executed` the one that the session made of it, if that could be had.
    """

    def __init__(self, model: Graph, executed: Graph | None) -> None:
        self.model = model
        self._executed = executed or Graph()
        self._found: dict[tuple[str, str], Node | None] = {}
        self._made = set(self._executed.makers)
        self._made.update(node.name.removesuffix(_BLOCKED) for node in self._executed.nodes)

    def executed(self, name: str) -> Node | None:
        """The node as the session has it."""
        return self._executed.named.get(name) or self.model.named.get(name)

    def original(self, name: str, op: str) -> Node | None:
        """The node of the file that this one does the work of."""
        key = (name, op)
        if key not in self._found:
            self._found[key] = self._by_name(name) or self._by_value(name, op) or self._by_neighbours(name)
        return self._found[key]

    def inputs(self, name: str, profiled: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        """All the inputs: the profile leaves out the weights that were packed when the session was made."""
        node = self.executed(name)
        names = [value for value in node.inputs if value] if node is not None else []
        rest = list(profiled)
        filled: list[TensorType] = []
        for at, value in enumerate(names):
            weight = self.weight(value)
            is_left_out = len(rest) < len(names) - at and weight is not None and weight not in rest[:1]
            if is_left_out and weight is not None:
                filled.append(weight)
            elif rest:
                filled.append(rest.pop(0))
        return profiled if rest or len(filled) != len(names) else tuple(filled)

    def weight(self, value: str) -> TensorType | None:
        return self._executed.weights.get(value) or self.model.weights.get(value)

    def _by_name(self, name: str) -> Node | None:
        """A fusion appends to the name of the node that it begins at: node_MatMul_9/MatMulAddFusion."""
        stem = name.removeprefix("fused ")
        while stem:
            node = self.model.named.get(stem)
            if node is not None:
                return node
            stem = stem.rpartition("/")[0]
        return None

    def _by_value(self, name: str, op: str) -> Node | None:
        values = [name.removesuffix(_BLOCKED)] if name.endswith(_BLOCKED) else []
        executed = self._executed.named.get(name)
        values += executed.outputs if executed is not None else ()
        for value in values:
            maker = self.model.makers.get(value)
            if maker is not None:
                return self._heart(maker, op.removeprefix("Fused"))
        return None

    def _heart(self, last: Node, op: str) -> Node:
        """The node that a fusion is named for: of Conv and Relu the Conv. `last` is where the fusion ends."""
        return next((node for node in self._taken_in(last) if node.op == op), last)

    def _taken_in(self, last: Node) -> Iterator[Node]:
        """Backwards, the nearest first, as far as no other node that was run makes the value."""
        row = deque([(last, 0)])
        seen = {id(last)}
        while row:
            node, steps = row.popleft()
            yield node
            makers = (self.model.makers.get(value) for value in node.inputs if value not in self._made)
            for maker in makers:
                if maker is not None and id(maker) not in seen and steps < _LONGEST_FUSION:
                    seen.add(id(maker))
                    row.append((maker, steps + 1))

    def _by_neighbours(self, name: str) -> Node | None:
        """A node that the session put in (a Reshape, a change of layout) works for the one that reads what it makes."""
        executed = self._executed.named.get(name)
        if executed is None:
            return None
        return self._first_known(self._after(executed)) or self._first_known(self._before(executed))

    def _first_known(self, nodes: Iterable[Node]) -> Node | None:
        known = (self._by_name(node.name) or self._by_value(node.name, node.op) for node in nodes)
        return next((node for node in known if node is not None), None)

    def _after(self, node: Node) -> Iterator[Node]:
        for value in node.outputs:
            yield from self._executed.readers.get(value, ())

    def _before(self, node: Node) -> Iterator[Node]:
        makers = (self._executed.makers.get(value) for value in node.inputs)
        return (maker for maker in makers if maker is not None)
