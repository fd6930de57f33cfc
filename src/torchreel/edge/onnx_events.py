"""What ONNX Runtime timed in one call, as events of a backend."""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.edge.adapter import BackendEvent, Place, TensorType
from torchreel.edge.onnx_flops import flops_of_node
from torchreel.edge.onnx_links import Links
from torchreel.edge.onnx_places import place_of_node
from torchreel.edge.onnx_profile import Span

BACKEND = "ONNX Runtime"


def backend_events(spans: Sequence[Span], thread: int, links: Links | None) -> list[BackendEvent]:
    """One for each span, parents first. `thread` is the one that made the call."""
    numbers = {id(span): number for number, span in enumerate(spans)}
    return [
        BackendEvent(
            name=span.op or span.name,
            backend=backend_name(span.provider),
            start_ns=span.start_ns,
            end_ns=span.end_ns,
            parent=None if span.parent is None else numbers.get(id(span.parent)),
            debug_handle=span.index,
            place=_place(span, links),
            inputs=_inputs(span, links),
            flops=None if links is None or span.op is None else flops_of_node(span, links),
            thread=0 if span.thread == thread else span.thread,
        )
        for span in spans
    ]


def backend_name(provider: str) -> str:
    """CPUExecutionProvider is ONNX Runtime's CPU."""
    return f"{BACKEND} {provider.removesuffix('ExecutionProvider')}".strip()


def _place(span: Span, links: Links | None) -> Place | None:
    node = None if links is None or span.op is None else links.original(span.name, span.op)
    if node is None or links is None:
        return None
    weight = links.model.weights.get(node.inputs[1]) if len(node.inputs) > 1 else None
    return place_of_node(node, weight)


def _inputs(span: Span, links: Links | None) -> tuple[TensorType, ...] | None:
    if span.op is None:
        return None
    return span.inputs if links is None else links.inputs(span.name, span.inputs)
