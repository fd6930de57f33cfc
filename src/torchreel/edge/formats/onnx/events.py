"""What ONNX Runtime timed in one call, as events of a backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchreel.edge.formats.adapter import BackendEvent
from torchreel.edge.formats.onnx.flops import flops_of_node
from torchreel.edge.formats.onnx.links import Links
from torchreel.edge.formats.onnx.locations import NodeLocations
from torchreel.edge.formats.onnx.profile import Span

BACKEND = "ONNX Runtime"


@dataclass(frozen=True)
class Model:
    """What a model's file says of the nodes that were run."""

    links: Links
    locations: NodeLocations


def backend_events(spans: Sequence[Span], thread: int, model: Model | None) -> list[BackendEvent]:
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
            thread=0 if span.thread == thread else span.thread,
            **_known(span, model),
        )
        for span in spans
    ]


def _known(span: Span, model: Model | None) -> dict[str, Any]:
    """What the model's file adds to what was timed."""
    if span.op is None:
        return {}
    if model is None:
        return {"inputs": span.inputs}
    node = model.links.original(span.name, span.op)
    inputs = model.links.inputs(span.name, span.inputs)
    location = None if node is None else model.locations.location(node)
    return {"inputs": inputs, "location": location, "flops": flops_of_node(span, inputs, model.links)}


def backend_name(provider: str) -> str:
    """CPUExecutionProvider is ONNX Runtime's CPU."""
    return f"{BACKEND} {provider.removesuffix('ExecutionProvider')}".strip()
