"""Calls -> torch's FunctionEventAvgs: summed in Arrow, one Python object per group and none per call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from torch.autograd.profiler_util import EventList, FunctionEventAvg

from torchreel.profiler.columns import numbers
from torchreel.profiler.details import CallDetails
from torchreel.profiler.events import SCOPES, function_events

_SUMMED = ("dur_ns", "self_ns", "bytes", "self_bytes", "flops")


@dataclass(frozen=True)
class Grouping:
    """What calls of one group have in common besides their name."""

    input_shapes: bool = False
    stack_frames: int = 0
    overload: bool = False

    @property
    def columns(self) -> list[str]:
        optional = {"inputs": self.input_shapes, "stack": self.stack_frames > 0, "overload": self.overload}
        return ["name", "kind", "node", *(name for name, wanted in optional.items() if wanted)]


def key_averages(recorded: Iterable[tuple[pa.Table, CallDetails]], grouping: Grouping, **shown: bool) -> EventList:
    """The averages over the calls of one or more reels, in the order in which groups first appear."""
    groups: dict[tuple[Any, ...], FunctionEventAvg] = {}
    for calls, details in recorded:
        for key, average in _groups(calls, details, grouping):
            if key in groups:
                groups[key].add(average)
            else:
                groups[key] = average
    return EventList(groups.values(), use_device=None, **shown)


def _groups(
    calls: pa.Table, details: CallDetails, grouping: Grouping
) -> Iterable[tuple[tuple[Any, ...], FunctionEventAvg]]:
    """Groups by id, with torch.profiler's key of each: several ids may have the same text."""
    columns = [calls[name] for name in grouping.columns] + [calls[name] for name in _SUMMED]
    table = pa.table(columns, [*grouping.columns, *_SUMMED]).append_column("row", pa.array(np.arange(calls.num_rows)))
    aggregates = [("row", "min"), ("row", "count"), *((name, "sum") for name in _SUMMED)]
    summed = table.group_by(grouping.columns).aggregate(aggregates).sort_by("row_min")
    first = calls.take(summed["row_min"])
    parents = _parents(calls, first, details)
    for group, call, parent in zip(summed.to_pylist(), first.to_pylist(), parents, strict=True):
        average = _average(group, call, details, grouping)
        average.cpu_parent = parent
        key = (average.key, average.node_id, average.is_user_annotation, average.overload_name)
        yield (*key, str(average.input_shapes), *average.stack), average


def _parents(calls: pa.Table, first: pa.Table, details: CallDetails) -> list[Any]:
    """The event around the first call of each group, None for none: it tells which groups are top-level."""
    rows = numbers(first, "parent")
    events = iter(function_events(calls.take(pa.array(rows[rows >= 0])), details))
    return [next(events) if row >= 0 else None for row in rows.tolist()]


def _average(group: dict[str, Any], call: dict[str, Any], details: CallDetails, grouping: Grouping) -> FunctionEventAvg:
    """A group's sums, and of its first call what torch.profiler takes from it."""
    average = FunctionEventAvg()
    average.key = call["name"]
    average.count = group["row_count"]
    average.node_id = call["node"]
    average.is_async = call["async"]
    average.cpu_children = []
    average.scope = SCOPES.get(call["kind"], 0)
    average.is_user_annotation = call["kind"] == "range"
    average.overload_name = call["overload"] if grouping.overload else ""
    average.input_shapes = details.arguments(call["inputs"]).shapes if grouping.input_shapes else ""
    average.stack = details.stack(call["stack"])[: grouping.stack_frames]
    average.cpu_time_total = group["dur_ns_sum"] / 1000
    average.self_cpu_time_total = group["self_ns_sum"] / 1000
    average.cpu_memory_usage = group["bytes_sum"]
    average.self_cpu_memory_usage = group["self_bytes_sum"]
    average.flops = group["flops_sum"]
    return average
