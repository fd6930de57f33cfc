"""The history of a device's allocator, as a memory snapshot keeps it, joined to the ops of the same run.

The history counts whole microseconds and knows no threads. An event belongs to the innermost operator that was open
when it happened, if operators were open on one thread only; else it is left without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from torchreel.ingest.device_join.open_calls import NONE, OpenCalls, numbers
from torchreel.ingest.device_join.tables import (
    Tables,
    complete,
    concat,
    first_free,
    merged_devices,
    shifted,
    with_column,
)

# To the middle of the microsecond that an event names.
_HALF_US = 500
_WITH_STACKS = ("allocs", "segments", "blocks")


@dataclass(frozen=True)
class JoinedHistory:
    """The tables of the run, and how many events of the device's allocator found their op."""

    tables: Tables
    events: int
    placed: int
    ambiguous: int
    """Events at a moment when operators were open on several threads."""


def join_history(host: Mapping[str, pa.Table], history: Mapping[str, pa.Table]) -> JoinedHistory:
    """The tables of a run with those of a snapshot of its devices' memory."""
    ours, theirs = complete(host), complete(history)
    found, ambiguous = _ops_of(ours["ops"], theirs["allocs"])
    theirs["allocs"] = with_column(theirs["allocs"], "op", found)
    _shift(ours, theirs)
    for name in ("frames", "stacks", "allocs", "segments", "blocks", "annotations", "settings"):
        ours[name] = concat(name, ours[name], theirs[name])
    ours["devices"] = merged_devices(ours["devices"], theirs["devices"])
    tables = {name: table for name, table in ours.items() if table.num_rows}
    return JoinedHistory(tables, len(found), int(np.count_nonzero(found != NONE)), ambiguous)


def _ops_of(ops: pa.Table, allocs: pa.Table) -> tuple[np.ndarray, int]:
    """The id of the op of each event, -1 for none; and how many could not be decided."""
    calls = OpenCalls.of(ops)
    times = numbers(allocs["time_ns"])
    candidates = np.zeros(len(times), dtype=np.int64)
    found = np.full(len(times), NONE)
    for thread in calls.threads:
        around = calls.launcher(calls.innermost(thread, times + _HALF_US))
        within = (around != NONE) & (times != NONE)
        within[within] = ~calls.is_range[around[within]]
        candidates += within
        found[within] = around[within]
    found[candidates != 1] = NONE
    ids = numbers(ops["id"])
    return np.where(found != NONE, ids[found] if len(ids) else NONE, NONE), int(np.count_nonzero(candidates > 1))


def _shift(ours: Tables, theirs: Tables) -> None:
    """Ids of frames, stacks and events begin after those that are there."""
    frames, stacks, allocs = (first_free(ours[name]) for name in ("frames", "stacks", "allocs"))
    for name, by in (("frames", frames), ("stacks", stacks), ("allocs", allocs)):
        theirs[name] = with_column(theirs[name], "id", shifted(theirs[name]["id"], by))
    for name in _WITH_STACKS:
        theirs[name] = with_column(theirs[name], "stack", shifted(theirs[name]["stack"], stacks))
    for name in ("allocs", "blocks"):
        theirs[name] = with_column(theirs[name], "alloc", shifted(theirs[name]["alloc"], allocs))
    lists = theirs["stacks"]["frames"].combine_chunks()
    moved = pa.ListArray.from_arrays(lists.offsets, pc.add(lists.values, pa.scalar(frames, pa.int32())))
    place = theirs["stacks"].schema.get_field_index("frames")
    theirs["stacks"] = theirs["stacks"].set_column(place, theirs["stacks"].schema.field(place), moved)
