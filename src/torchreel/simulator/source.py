"""Where request traces come from: a snapshot, a reel, a plain list of events."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from torchreel.errors import OptionError
from torchreel.ingest import open_source
from torchreel.reel import Reel
from torchreel.reel.allocator_history.actions import PREEXISTING
from torchreel.simulator.event_list import Event, request_trace_of_list
from torchreel.simulator.recorded.recorded_history import ACTION, RecordedHistory, recorded_histories
from torchreel.simulator.recorded.replay import request_trace_of_history
from torchreel.simulator.request_trace import RequestTraces

Source = str | os.PathLike[str] | Reel | RequestTraces | Iterable[Event]


def request_traces(source: Source) -> RequestTraces:
    """The request traces of all devices. One that is given is given back: it is not read twice."""
    if isinstance(source, RequestTraces):
        return source
    if isinstance(source, Reel):
        return _of_reel(source)
    if isinstance(source, str | os.PathLike):
        with open_source(source) as reel:
            return _of_reel(reel)
    return RequestTraces({"cuda:0": request_trace_of_list(source)})


def named(found: list[RecordedHistory]) -> list[tuple[str, RecordedHistory]]:
    """Each with its device's name, and its process's number if there are several."""
    several = len({history.process for history in found}) > 1
    return [(f"{one.process}/{one.device}" if several else one.device, one) for one in found]


def _of_reel(reel: Reel) -> RequestTraces:
    found = [history for history in recorded_histories(reel) if _has_requests(history)]
    if not found:
        raise OptionError(
            f"{reel.path} holds no allocs that could be simulated: record a history with "
            "torch.cuda.memory._record_memory_history() before the snapshot, or memory=True in a recording."
        )
    return RequestTraces({name: request_trace_of_history(history) for name, history in named(found)})


def _has_requests(history: RecordedHistory) -> bool:
    return history.has_events or bool(np.any(history.events[:, ACTION] == PREEXISTING)) or bool(history.blocks)
