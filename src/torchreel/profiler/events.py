"""Calls -> torch's FunctionEvents: one object per call, made only when a program asks for them."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from torch.autograd.profiler_util import EventList, FunctionEvent

from torchreel.profiler.calls import PLACES
from torchreel.profiler.columns import above, numbers
from torchreel.profiler.details import CallDetails

log = logging.getLogger(__name__)

# at::RecordScope of each kind of call; that of all others is that of a function.
SCOPES = {"backward": 1, "torchscript": 2, "custom": 4, "lite": 6, "range": 7, "static_runtime": 8}
# Kineto's name for what each kind of call is; all others are ops.
_ACTIVITIES = {"range": "user_annotation", "python": "python_function", "module": "python_function", "memory": None}
_TIMED_EVERY = 1024


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Python's garbage collector looks at all objects again and again while many are made, none of them garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_collector_paused()
def event_list(calls: pa.Table, details: CallDetails, timeout_s: float | None, **shown: bool) -> EventList:
    """All calls as torch.profiler's events(), linked with their parents and children."""
    events = function_events(calls, details, timeout_s)
    parents = numbers(calls, "parent").tolist()
    for event, parent in zip(events, parents, strict=False):
        if parent >= 0:
            event.set_cpu_parent(events[parent])
            events[parent].append_cpu_child(event)
    python_ids = _python_parents(calls)
    for event, python_id in zip(events, python_ids, strict=False):
        event.python_parent_id = python_id
    result = EventList(events, use_device=None, **shown)
    result._tree_built = True
    return result


def _python_parents(calls: pa.Table) -> list[int]:
    """For each call of Python's the id of the one around it, -1 for none and for all other calls."""
    is_place = np.isin(calls["kind"].cast(pa.string()).to_numpy(zero_copy_only=False), PLACES)
    parent = numbers(calls, "parent")
    nearest = above(np.where(is_place, parent, -1), parent, lambda _, row: ~is_place[row])
    ids: list[int] = np.where(nearest >= 0, numbers(calls, "id")[nearest], -1).tolist()
    return ids


def function_events(calls: pa.Table, details: CallDetails, timeout_s: float | None = None) -> list[FunctionEvent]:
    """One event per row, not yet linked with each other; after `timeout_s` seconds, those that are made by then."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    events = []
    for number, call in enumerate(_rows(calls)):
        if deadline is not None and number % _TIMED_EVERY == 0 and time.monotonic() >= deadline:
            log.warning("Only the first %d of %d events were made in %s seconds", number, calls.num_rows, timeout_s)
            break
        events.append(_event(call, details))
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


def _event(call: dict[str, Any], details: CallDetails) -> FunctionEvent:
    kind, thread = call["kind"], call["thread"]
    arguments = details.arguments(call["inputs"])
    is_place = kind in PLACES
    start = call["start_ns"] - details.start_ns
    event = FunctionEvent(
        id=call["id"],
        name=call["name"],
        trace_name=call["trace_name"],
        overload_name=call["overload"],
        thread=details.torch_thread.get(thread, 0),
        start_us=start / 1000,
        end_us=(start + call["dur_ns"]) / 1000,
        fwd_thread=details.torch_thread.get(call["fwd_thread"], 0),
        input_shapes=arguments.shapes,
        concrete_inputs=arguments.values,
        kwinputs={},
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
        is_python_function=is_place,
        activity_type=_ACTIVITIES.get(kind, "cpu_op"),
        metadata_json="",
        flow_id=call["flow"],
        flow_type=int(call["flow"] > 0),
        flow_start=call["flow"] > 0 and kind != "backward",
        external_id=call["id"],
        structured_input_shapes=arguments.dims,
        structured_input_strides=arguments.strides,
        input_dtypes=arguments.dtypes,
        python_id=call["id"] if is_place else -1,
        python_module_id=call["module"] if kind == "module" else -1,
    )
    event.module_hierarchy = details.module(call["module"])
    return event
