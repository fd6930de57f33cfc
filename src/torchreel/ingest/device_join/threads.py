"""Which thread of the host's half is which of the device's half.

Kineto knows the operating system's number of a thread if the thread has opened a range, else another number that says
nothing to us. But a thread makes its calls within its own operators: that tells it from the others.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from torchreel.ingest.device_join.open_calls import NONE, OpenCalls, numbers

# So many of a thread's calls must lie within operators of one thread for the two to be the same.
_SHARE = 0.9
_FEWEST = 3


def match_threads(
    host: dict[str, pa.Table], device: dict[str, pa.Table], calls: OpenCalls, begins: np.ndarray, ends: np.ndarray
) -> dict[int, int]:
    """From threads of the device's half to those of the host's; `begins` and `ends` are the times of its ops."""
    by_number = {row["os_id"]: row["id"] for row in host["threads"].select(["id", "os_id"]).to_pylist()}
    theirs = device["threads"].select(["id", "os_id"]).to_pylist()
    found = {row["id"]: by_number[row["os_id"]] for row in theirs if row["os_id"] in by_number}
    threads = numbers(device["ops"]["thread"])
    for row in theirs:
        if row["id"] not in found:
            own = threads == row["id"]
            taken = set(found.values())
            candidates = [thread for thread in calls.threads if thread not in taken and thread != NONE]
            same = _only_around(calls, candidates, begins[own], ends[own])
            if same is not None:
                found[row["id"]] = same
    return found


def _only_around(calls: OpenCalls, candidates: list[int], begins: np.ndarray, ends: np.ndarray) -> int | None:
    """The one thread within whose operators nearly all of these calls lie."""
    if len(begins) < _FEWEST:
        return None
    fitting = [thread for thread in candidates if _share_within(calls, thread, begins, ends) >= _SHARE]
    return fitting[0] if len(fitting) == 1 else None


def _share_within(calls: OpenCalls, thread: int, begins: np.ndarray, ends: np.ndarray) -> float:
    around = calls.launcher(calls.innermost(thread, begins))
    within = (around != NONE) & ~calls.is_range[around] & (ends <= calls.ends[around])
    return float(np.count_nonzero(within)) / len(begins)
