"""How many activities were launched and had not begun, for each stream.

The length grows by one when the launching call begins, and falls by one when the activity does; of two events at the
same time the launch is first. Activities of graphs, which one call launches all at once, and those whose launch was
not recorded are not counted.

`mean` is over the time from the first launch to the last beginning; `full_ns` is the time with at least `limit`
activities: CUDA's queue holds 1,024, and a launch that finds it full waits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.activities import Activities
from torchreel.reel.columns import Ints

LIMIT = 1024

SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("device", pa.string()),
        ("stream", pa.int64()),
        ("launched", pa.int64()),
        ("max", pa.int64()),
        ("mean", pa.float64()),
        ("full_ns", pa.int64()),
    ]
)


class Lengths(NamedTuple):
    """The length of a queue from each time on."""

    time: Ints
    length: Ints


def lengths(own: Activities) -> Lengths:
    """The length of one stream's queue after each launch and each beginning."""
    counted = own.launched & ~own.replay
    time = np.concatenate((own.launch_start[counted], own.start[counted]))
    change = np.repeat(np.array([1, -1]), len(time) // 2)
    order = np.lexsort((-change, time))
    return Lengths(time[order], np.cumsum(change[order]))


def queue(found: Activities, limit: int = LIMIT) -> pa.Table:
    """A row per process, device and stream."""
    rows = []
    for process, device, stream, own in found.by_stream():
        time, length = lengths(own)
        held = np.diff(time)
        wall = int(held.sum())
        rows.append(
            {
                "process": process,
                "device": device,
                "stream": stream,
                "launched": len(time) // 2,
                "max": int(length.max()) if len(length) else 0,
                "mean": float((held * length[:-1]).sum() / wall) if wall else None,
                "full_ns": int(held[length[:-1] >= limit].sum()),
            }
        )
    return pa.Table.from_pylist(rows, SCHEMA)
