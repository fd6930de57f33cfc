"""The floating-point operations of an ONNX node, a multiplication and an addition being two: right, or None.

Counted is what the model's own shapes ask for, not what a kernel computes beyond it because it pads its channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from torchreel.edge.formats.adapter import TensorType
from torchreel.edge.formats.onnx.graph import Node
from torchreel.edge.formats.onnx.links import Links
from torchreel.edge.formats.onnx.profile import Span

Sizes = tuple[int, ...]
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_BLOCKED_DOMAIN = "com.microsoft.nchwc"


def flops_of_node(span: Span, inputs: Sequence[TensorType], links: Links) -> int | None:
    """None for an operator without a formula, and where a size is not known. `inputs` has the packed weights too."""
    formula = _FORMULAS.get(span.op or "")
    if formula is None or not inputs or not span.outputs:
        return None
    return formula(span, links, [type.sizes for type in inputs], span.outputs[0].sizes)


def _convolution(span: Span, links: Links, inputs: list[Sizes], output: Sizes) -> int | None:
    weight = _filter(span, links, inputs)
    return None if weight is None or len(output) != len(weight) else 2 * output[0] * prod(output[2:]) * prod(weight)


def _transposed_convolution(span: Span, links: Links, inputs: list[Sizes], output: Sizes) -> int | None:
    weight = _filter(span, links, inputs)
    return (
        None
        if weight is None or len(inputs[0]) != len(weight)
        else 2 * inputs[0][0] * prod(inputs[0][2:]) * prod(weight)
    )


def _filter(span: Span, links: Links, inputs: list[Sizes]) -> Sizes | None:
    """Its sizes in the model's file: where channels are laid out in blocks, the session's own filter is padded."""
    original = links.original(span.name, span.op or "")
    executed = links.executed(span.name)
    weight = _weight(original, span.op, links)
    is_known = executed is not None and executed.domain != _BLOCKED_DOMAIN
    if weight is None and is_known and len(inputs) > 1:
        weight = inputs[1]
    return weight if weight is not None and len(weight) > 2 else None


def _weight(node: Node | None, op: str | None, links: Links) -> Sizes | None:
    if node is None or node.op != (op or "").removeprefix("Fused") or len(node.inputs) < 2:
        return None
    known: TensorType | None = links.model.weights.get(node.inputs[1])
    return None if known is None else known.sizes


def _gemm(span: Span, links: Links, inputs: list[Sizes], output: Sizes) -> int | None:
    """The first operand has M times K elements, whichever of its sides comes first."""
    return 2 * prod(inputs[0]) * output[-1] if len(inputs[0]) == 2 and len(output) == 2 else None


def _matmul(span: Span, links: Links, inputs: list[Sizes], output: Sizes) -> int | None:
    return 2 * prod(output) * inputs[0][-1] if inputs[0] else None


def _fused_matmul(span: Span, links: Links, inputs: list[Sizes], output: Sizes) -> int | None:
    """May take its first operand transposed, and with the rows in front of the batch."""
    node, first = links.executed(span.name), inputs[0]
    if node is None or node.op != span.op or not first:
        return None
    if not node.attributes.get("transA") or len(first) == 1:
        inner = first[-1]
    else:
        inner = first[0] if node.attributes.get("transBatchA") else first[-2]
    return 2 * prod(output) * inner


def _recurrent(span: Span, links: Links, inputs: list[Sizes], output: Sizes) -> int | None:
    """The products of the gates; with sequences of different lengths it is not known how many there were."""
    node = links.executed(span.name)
    if node is None or node.op != span.op or len(inputs[0]) != 3 or "".join(node.inputs[4:5]):
        return None
    hidden = node.attributes.get("hidden_size")
    if not isinstance(hidden, int):
        return None
    directions = 2 if node.attributes.get("direction") == "bidirectional" else 1
    steps = inputs[0][0] * inputs[0][1]
    return 2 * steps * directions * _GATES[node.op] * hidden * (inputs[0][2] + hidden)


_FORMULAS: dict[str, Callable[[Span, Links, list[Sizes], Sizes], int | None]] = {
    "Conv": _convolution,
    "FusedConv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    "FusedGemm": _gemm,
    "MatMul": _matmul,
    "FusedMatMul": _fused_matmul,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
}
