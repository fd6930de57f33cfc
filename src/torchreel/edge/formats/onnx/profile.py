"""The profile that ONNX Runtime writes: one line of JSON for each thing it timed, children before what they lie in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from torchreel.edge.formats.adapter import TensorType

KERNEL = "_kernel_time"
EXECUTOR = "Executor::Execute"
RUN = "model_run"
# Written in place of what no longer fitted: ONNX Runtime keeps a million events.
TRUNCATED = "profile_truncated"
_DTYPES = {"float": "float32", "double": "float64"}


@dataclass(eq=False)
class Span:
    """One thing that ONNX Runtime timed: a run of the model, an executor of a graph, or a node of it."""

    name: str
    """Of the node, without what the profile appends to it."""
    op: str | None
    """The node's operator; None for a run and an executor."""
    provider: str
    start_ns: int
    end_ns: int
    thread: int
    index: int | None = None
    inputs: tuple[TensorType, ...] = ()
    """Without the weights that were packed when the session was made: the profile does not know them."""
    outputs: tuple[TensorType, ...] = ()
    parent: Span | None = None

    @property
    def is_run(self) -> bool:
        return self.op is None and self.name == RUN

    @property
    def is_executor(self) -> bool:
        return self.op is None and self.name != RUN

    def may_hold(self, other: Span) -> bool:
        """A run holds executors, an executor holds nodes, and a node with a branch or a body holds executors."""
        return other.op is not None if self.is_executor else other.is_executor


class _Event(msgspec.Struct):
    name: str = ""
    ts: int = 0
    dur: int = 0
    tid: int = 0
    args: dict[str, Any] = {}


def dtype_name(runtime_name: str) -> str:
    """As torch names it: ONNX Runtime's float is float32."""
    return _DTYPES.get(runtime_name, runtime_name)


def read_profile(path: Path, origin_ns: int) -> tuple[list[Span], bool]:
    """What was timed, in the order of the file, and whether it is all that happened."""
    decoder = msgspec.json.Decoder(_Event)
    spans: list[Span] = []
    whole = True
    with path.open("rb") as file:
        for line in file:
            try:
                event = decoder.decode(line.strip().rstrip(b","))
            except msgspec.DecodeError:
                # The brackets around the list, or a line that was never finished.
                continue
            whole = whole and event.name != TRUNCATED
            span = _span(event, origin_ns)
            if span is not None:
                spans.append(span)
    return spans, whole


def _span(event: _Event, origin_ns: int) -> Span | None:
    start = origin_ns + event.ts * 1000
    end = start + max(event.dur, 0) * 1000
    if event.name == RUN or event.name.endswith(EXECUTOR):
        return Span(event.name, None, "", start, end, event.tid)
    op = event.args.get("op_name")
    if not event.name.endswith(KERNEL) or not isinstance(op, str):
        return None
    return Span(
        event.name.removesuffix(KERNEL),
        op,
        str(event.args.get("provider", "")),
        start,
        end,
        event.tid,
        _index(event.args.get("node_index")),
        _types(event.args.get("input_type_shape")),
        _types(event.args.get("output_type_shape")),
    )


def _index(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() else None


def _types(described: Any) -> tuple[TensorType, ...]:
    """From a list of {"float": [1, 3]}."""
    if not isinstance(described, list):
        return ()
    pairs = [pair for one in described if isinstance(one, dict) for pair in one.items()]
    return tuple(TensorType(tuple(sizes), dtype_name(name)) for name, sizes in pairs if isinstance(sizes, list))
