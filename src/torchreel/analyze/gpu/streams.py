"""Why streams waited between their activities, and how long their queues were.

A gap is the time from the greatest end so far to the next beginning on a stream. It is

- the host's, if the call that launched what comes next began after that end: there was nothing to run;
- back to back, if it is shorter than `gap_ns`: what a device takes from one kernel to the next;
- other, else: the stream waited for another one, or for an event.

The three add up to `idle_ns`. `queue_max` is the greatest number of activities that were launched and had not begun.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.activities import Activities
from torchreel.analyze.gpu.queue import lengths

GAP_NS = 30_000

SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("device", pa.string()),
        ("stream", pa.int64()),
        ("activities", pa.int64()),
        ("busy_ns", pa.int64()),
        ("idle_ns", pa.int64()),
        ("idle_host_ns", pa.int64()),
        ("idle_back_to_back_ns", pa.int64()),
        ("idle_other_ns", pa.int64()),
        ("queue_max", pa.int64()),
    ]
)


def streams(found: Activities, gap_ns: int = GAP_NS) -> pa.Table:
    """A row per process, device and stream."""
    rows = [
        {"process": process, "device": device, "stream": stream, "activities": len(own)} | _waits(own, gap_ns)
        for process, device, stream, own in found.by_stream()
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def _waits(own: Activities, gap_ns: int) -> dict[str, Any]:
    reached = np.maximum.accumulate(own.end)[:-1]
    gap = np.maximum(own.start[1:] - reached, 0)
    host = own.launched[1:] & (own.launch_start[1:] > reached)
    idle, of_host = int(gap.sum()), int(gap[host].sum())
    back_to_back = int(gap[~host & (gap < gap_ns)].sum())
    queue = lengths(own).length
    return {
        "busy_ns": own.busy().length,
        "idle_ns": idle,
        "idle_host_ns": of_host,
        "idle_back_to_back_ns": back_to_back,
        "idle_other_ns": idle - of_host - back_to_back,
        "queue_max": int(queue.max()) if len(queue) else 0,
    }
