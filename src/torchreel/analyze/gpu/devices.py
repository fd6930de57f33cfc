"""Where the time of each device went: compute, communication, memory and idle, which add up.

- `span_ns` is from the beginning of a device's first activity to the end of its last: `busy_ns` + `idle_ns`.
- `compute_ns`, `communication_ns` and `memory_ns` (copies and sets) are the times in which at least one activity of
  the kind ran. What is of no known kind counts as compute.
- `exposed_communication_ns` is communication without compute at the same time, `exposed_memory_ns` is memory without
  either. `overlap_ns` is communication with compute at the same time.
- compute + exposed communication + exposed memory + idle = span, to the nanosecond.
- `occupancy_percent` is the mean of the estimated achieved occupancy over the time of the kernels that have one.
- `sm_efficiency_percent` is the part of the multiprocessors that had a block, over the span: the sum of the blocks per
  multiprocessor of all kernels that run, 1 at most.

Utilisation, as the TensorBoard plug-in called it, is busy_ns / span_ns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.activities import COMMUNICATION, COMPUTE, COPY, SET, Activities
from torchreel.analyze.gpu.efficiency import filled_ns
from torchreel.analyze.gpu.intervals import difference, intersection, joined
from torchreel.reel import Reel

SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("rank", pa.int32()),
        ("device", pa.string()),
        ("model", pa.string()),
        ("span_ns", pa.int64()),
        ("busy_ns", pa.int64()),
        ("idle_ns", pa.int64()),
        ("compute_ns", pa.int64()),
        ("communication_ns", pa.int64()),
        ("memory_ns", pa.int64()),
        ("exposed_communication_ns", pa.int64()),
        ("exposed_memory_ns", pa.int64()),
        ("overlap_ns", pa.int64()),
        ("occupancy_percent", pa.float64()),
        ("sm_efficiency_percent", pa.float64()),
    ]
)


def devices(reel: Reel, found: Activities) -> pa.Table:
    """A row per process and device that had an activity."""
    ranks = {row["process"]: row["rank"] for row in reel.table("processes", ["rank"]).to_pylist()}
    models = {
        (row["process"], row["device"]): row["model"] for row in reel.table("devices", ["device", "model"]).to_pylist()
    }
    rows = [
        {"process": process, "rank": ranks.get(process), "device": device, "model": models.get((process, device))}
        | breakdown(own)
        for process, device, own in found.by_device()
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def breakdown(own: Activities) -> dict[str, Any]:
    """The times of one device."""
    compute, communication, memory = own.busy(COMPUTE), own.busy(COMMUNICATION), own.busy(COPY, SET)
    busy = joined(compute, communication, memory)
    span = int(own.end.max() - own.start.min())
    return {
        "span_ns": span,
        "busy_ns": busy.length,
        "idle_ns": span - busy.length,
        "compute_ns": compute.length,
        "communication_ns": communication.length,
        "memory_ns": memory.length,
        "exposed_communication_ns": difference(communication, compute).length,
        "exposed_memory_ns": difference(memory, joined(compute, communication)).length,
        "overlap_ns": intersection(communication, compute).length,
        "occupancy_percent": occupancy(own),
        "sm_efficiency_percent": sm_efficiency(own, span),
    }


def occupancy(own: Activities) -> float | None:
    """The mean over time of what the kernels say of their occupancy; None if none says it."""
    known = ~np.isnan(own.occupancy)
    time = int(own.dur[known].sum())
    return float((own.occupancy[known] * own.dur[known]).sum() / time) if time else None


def sm_efficiency(own: Activities, window_ns: int) -> float | None:
    """The part of the multiprocessors that had a block, in percent of a window; None if no kernel says how many."""
    if np.all(np.isnan(own.blocks_per_sm)) or not window_ns:
        return None
    return 100 * filled_ns(own) / window_ns
