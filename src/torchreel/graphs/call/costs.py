"""Where the time of a replay goes: each op of a graph, in which layer it runs, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchreel.errors import GraphError
from torchreel.graphs.call.state import State
from torchreel.graphs.record.recorded_call import RecordedCall
from torchreel.tape.structure import Structure

_RUNS = 20


@dataclass(frozen=True)
class Cost:
    op: str
    layer: str
    line: str  # of the source, or nothing
    ns: float  # the least of some runs; a clock that is asked twice is part of it


def costs_of(recording: RecordedCall | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Cost]:
    """The ops of the forward, in their order. What they write is put back."""
    if recording is None:
        raise GraphError("Such a call has no graph yet: call the function a few times with these arguments first.")
    inputs = Structure((args, kwargs)).tensors
    replay = recording.entry.replay
    state = State(recording, inputs)
    rows: list[tuple[int, str, float]] = []
    for _ in range(_RUNS):
        found = replay.timed_run(inputs)
        state.put_back()
        rows = (
            found
            if not rows
            else [(op, layer, min(ns, new)) for (op, layer, ns), (_, _, new) in zip(rows, found, strict=True)]
        )
    return [Cost(recording.op_name(op), layer, recording.line(op), ns) for op, layer, ns in rows]
