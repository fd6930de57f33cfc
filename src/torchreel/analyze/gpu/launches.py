"""What launching costs: pairs of an activity and the call that launched it.

Activities of graphs are left out: one call launches all of them. `delay_ns` is from the end of a call to the beginning
of its activity, 0 if that began before; `delay_median_ns` is the lower of two middle ones. `shorter_than_call` counts
activities that took less time than the call that launched them: the host is then the limit. `before_call` counts those
that began before their call, which is a fault of the clocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.activities import Activities

SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("pairs", pa.int64()),
        ("call_ns", pa.int64()),
        ("kernel_ns", pa.int64()),
        ("delay_ns", pa.int64()),
        ("delay_median_ns", pa.int64()),
        ("shorter_than_call", pa.int64()),
        ("before_call", pa.int64()),
    ]
)


def launches(found: Activities) -> pa.Table:
    """A row per process with activities whose launch was recorded."""
    pairs = found.take(found.launched & ~found.replay)
    return pa.Table.from_pylist([{"process": process} | _costs(own) for process, own in pairs.by_process()], SCHEMA)


def _costs(own: Activities) -> dict[str, Any]:
    call = own.launch_end - own.launch_start
    delay = np.maximum(own.start - own.launch_end, 0)
    middle = (len(own) - 1) // 2
    return {
        "pairs": len(own),
        "call_ns": int(call.sum()),
        "kernel_ns": int(own.dur.sum()),
        "delay_ns": int(delay.sum()),
        "delay_median_ns": int(np.partition(delay, middle)[middle]),
        "shorter_than_call": int((own.dur < call).sum()),
        "before_call": int((own.start < own.launch_start).sum()),
    }
