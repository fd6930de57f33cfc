"""Steps as `_ExperimentalConfig(adjust_profiler_step=True)` shows them.

A step begins within the Python call that called `step()`, and ends within the next one. Shown as it is, it overlaps
with both in part. Its beginning is moved to that of the call in which it ends, so that it lies within that one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from torchreel.profiler.columns import Integers, numbers
from torchreel.reel import Reel


def moved_steps(reel: Reel) -> pa.Table:
    """The steps whose beginning moves: `id` of the op, `start_ns` and `dur_ns`."""
    ops = reel.table("ops", ["id", "thread", "name", "kind", "start_ns", "dur_ns"])
    ops = ops.filter(pc.equal(ops["process"], 0))
    kind = ops["kind"].cast(pa.string())
    is_step = pc.and_(pc.equal(kind, "range"), pc.starts_with(ops["name"].cast(pa.string()), "ProfilerStep#"))
    steps = ops.filter(is_step)
    calls = ops.filter(pc.is_in(kind, pa.array(["python", "module"])))
    call_start, call_thread = numbers(calls, "start_ns"), numbers(calls, "thread")
    call_end = call_start + numbers(calls, "dur_ns")
    start, thread = numbers(steps, "start_ns"), numbers(steps, "thread")
    end = start + numbers(steps, "dur_ns")
    moved = start.copy()
    for row in range(steps.num_rows):
        own = call_thread == thread[row]
        moved[row] = _beginning(int(start[row]), int(end[row]), call_start[own], call_end[own])
    changed = np.flatnonzero(moved != start)
    columns = {"id": numbers(steps, "id"), "start_ns": moved, "dur_ns": end - moved}
    return pa.table({name: pa.array(values[changed], pa.int64()) for name, values in columns.items()})


def _beginning(start: int, end: int, call_start: Integers, call_end: Integers) -> int:
    """Where a step begins, so that it overlaps with no call in part."""
    ending = (call_start >= start) & (call_start < end) & (call_end > end)
    if ending.any():
        return int(call_start[ending].min())
    beginning = (call_start < start) & (call_end > start) & (call_end < end)
    return int(call_end[beginning].max()) if beginning.any() else int(start)
