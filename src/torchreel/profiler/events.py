"""Calls -> torch's FunctionEvents: one object per call, made only when a program asks for them."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch.autograd.profiler_util import EventList, FunctionEvent

from torchreel._collector import collector_paused
from torchreel._torch.profiler import mark_tree_as_built
from torchreel.profiler.calls import PYTHON_CALLS
from torchreel.profiler.columns import above, numbers
from torchreel.profiler.details import CallDetails
from torchreel.profiler.names import module_number

# torch.profiler's own: whoever listens for its warnings hears ours.
log = logging.getLogger("torch.autograd.profiler")

# at::RecordScope of each kind of call; that of all others is that of a function.
SCOPES = {"backward": 1, "torchscript": 2, "custom": 4, "lite": 6, "range": 7, "static_runtime": 8}
# Kineto's name for what each kind of call is; all others are ops.
_ACTIVITIES = {"range": "user_annotation", "python": "python_function", "module": "python_function", "memory": None}
_TIMED_EVERY = 1024


class Events(EventList):  # type: ignore[misc]
    """torch's list of events; its trace stays valid whatever the names of calls are."""

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the calls, their times and threads as a Chrome trace."""
        shown = [_trace_line(event) for event in self if event.trace_name is not None]
        Path(path).write_text("[" + ",\n".join(shown) + "]", encoding="utf-8")


def _trace_line(event: FunctionEvent) -> str:
    remote = f"node_id:{event.node_id}, thread_id:{event.thread}"
    where = {"tid": remote if event.is_remote else event.thread, "pid": "CPU functions"}
    when = {"ts": event.time_range.start, "dur": event.time_range.elapsed_us()}
    return json.dumps({"name": event.trace_name, "ph": "X", **when, **where, "args": {}})


@collector_paused()
def event_list(
    calls: pa.Table, details: CallDetails, timeout_s: float | None, metadata: bool = False, **shown: bool
) -> EventList:
    """All calls as torch.profiler's events(), linked with their parents and children."""
    events = function_events(calls, details, timeout_s, metadata)
    parents = numbers(calls, "parent").tolist()
    for event, parent in zip(events, parents, strict=False):
        if parent >= 0:
            event.set_cpu_parent(events[parent])
            events[parent].append_cpu_child(event)
    python_ids = _python_parents(calls)
    for event, python_id in zip(events, python_ids, strict=False):
        event.python_parent_id = python_id
    result = Events(events, use_device=None, **shown)
    mark_tree_as_built(result)
    return result


def _python_parents(calls: pa.Table) -> list[int]:
    """For each Python call the id of the Python call around it; -1 if there is none, and for other calls."""
    is_python_call = np.isin(calls["kind"].cast(pa.string()).to_numpy(zero_copy_only=False), PYTHON_CALLS)
    parent = numbers(calls, "parent")
    nearest = above(np.where(is_python_call, parent, -1), parent, lambda _, row: ~is_python_call[row])
    ids: list[int] = np.where(nearest >= 0, numbers(calls, "id")[nearest] + 1, -1).tolist()
    return ids


def function_events(
    calls: pa.Table, details: CallDetails, timeout_s: float | None = None, metadata: bool = False
) -> list[FunctionEvent]:
    """One event per row, not yet linked with each other; after `timeout_s` seconds, those that are made by then."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    events = []
    for number, call in enumerate(_rows(calls)):
        if deadline is not None and number % _TIMED_EVERY == 0 and time.monotonic() >= deadline:
            log.warning(
                "Making events timed out after %s seconds, giving partial results: the first %d of %d",
                timeout_s,
                number,
                calls.num_rows,
            )
            break
        events.append(_event(call, details, metadata))
    return events


def _rows(calls: pa.Table) -> Iterator[dict[str, Any]]:
    names = calls.column_names
    for batch in calls.to_batches(max_chunksize=65536):
        yield from (dict(zip(names, row, strict=True)) for row in zip(*map(_values, batch.columns), strict=True))


def _values(column: pa.Array) -> list[Any]:
    """What to_pylist() gives, several times as fast."""
    if pa.types.is_dictionary(column.type):
        texts = [*column.dictionary.to_pylist(), None]
        return [texts[index] for index in column.indices.fill_null(-1).to_pylist()]
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _event(call: dict[str, Any], details: CallDetails, metadata: bool) -> FunctionEvent:
    kind, thread = call["kind"], call["thread"]
    arguments = details.arguments(call["inputs"])
    is_python_call = kind in PYTHON_CALLS
    start = call["start_ns"] - details.start_ns
    event = FunctionEvent(
        id=call["id"],
        name=call["name"],
        trace_name=call["trace_name"],
        overload_name=call["overload"],
        thread=details.torch_thread.get(thread, 0),
        start_us=start / 1000,
        end_us=(start + call["dur_ns"]) / 1000,
        fwd_thread=details.torch_thread.get(call["fwd_thread"], 0) if call["seq"] >= 0 else 0,
        input_shapes=arguments.shapes,
        concrete_inputs=arguments.values,
        kwinputs=arguments.keywords,
        stack=details.stack(call["stack"]),
        scope=SCOPES.get(kind, 0),
        cpu_memory_usage=call["bytes"],
        is_async=call["async"],
        sequence_nr=call["seq"],
        node_id=call["node"],
        device_index=details.pid,
        device_resource_id=details.os_thread.get(thread, 0),
        flops=call["flops"],
        is_user_annotation=kind == "range",
        is_python_function=is_python_call,
        activity_type=_ACTIVITIES.get(kind, "cpu_op"),
        metadata_json=f'"Ev Idx": {call["id"]}' if metadata and not is_python_call else "",
        flow_id=call["flow"],
        flow_type=int(call["flow"] > 0),
        flow_start=call["flow"] > 0 and kind != "backward",
        external_id=call["id"] + 1,  # in traces 0 stands for none
        structured_input_shapes=arguments.dims,
        structured_input_strides=arguments.strides,
        input_dtypes=arguments.dtypes,
        python_id=call["id"] + 1 if is_python_call else -1,
        python_module_id=module_number(call["name"]) if kind == "module" else -1,
    )
    event.module_hierarchy = call["script_modules"] or details.module(call["module"])
    return event
