"""The CPU as a device, for a reel that has no other: when its operators ran, and when its collectives did.

Busy is the time in which an operator ran on any thread, communication that in which a collective did, and compute the
time of all other operators. Idle is the time between the first and the last of them in which none ran.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.calls import Calls
from torchreel.analyze.gpu.devices import SCHEMA
from torchreel.analyze.gpu.intervals import difference, intersection, joined, union
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints, Mask

# Kinds that say where something ran, not what.
_NO_OPERATORS = ("range", "module", "python", "runtime", "driver", "overhead")
_COLLECTIVE = re.compile(r"^(c10d::|_c10d_functional::|gloo:|nccl:|mpi:|ucc:|record_param_comms)")


def host(reel: Reel, step: int | None = None) -> pa.Table:
    """A row per process with operators, in the columns of `devices`."""
    calls = Calls.of(reel, "kind", "name", "start_ns", "dur_ns", "step")
    start, dur = calls.ints("start_ns"), calls.ints("dur_ns")
    name, names = calls.texts("name")
    talks = np.array([*(_COLLECTIVE.match(text) is not None for text in names), False], bool)[name]
    chosen = ~calls.of_kind(*_NO_OPERATORS) & (dur != NOTHING)
    if step is not None:
        chosen &= calls.ints("step") == step
    ranks = {row["process"]: row["rank"] for row in reel.table("processes", ["rank"]).to_pylist()}
    rows = []
    for process in np.unique(calls.process[chosen]).tolist():
        mine = chosen & (calls.process == process)
        row = {"process": process, "rank": ranks.get(process), "device": "cpu"}
        rows.append(row | _breakdown(start[mine], dur[mine], talks[mine]))
    return pa.Table.from_pylist(rows, SCHEMA)


def _breakdown(start: Ints, dur: Ints, talks: Mask) -> dict[str, Any]:
    end = start + np.maximum(dur, 0)
    communication = union(start[talks], end[talks])
    compute = union(start[~talks], end[~talks])
    span = int(end.max() - start.min())
    busy = joined(compute, communication).length
    return {
        "span_ns": span,
        "busy_ns": busy,
        "idle_ns": span - busy,
        "compute_ns": compute.length,
        "communication_ns": communication.length,
        "memory_ns": 0,
        "exposed_communication_ns": difference(communication, compute).length,
        "exposed_memory_ns": 0,
        "overlap_ns": intersection(communication, compute).length,
    }
