"""The time that devices spent for calls of the host: for what they launched themselves, and with the calls inside.

An activity belongs to the op or range that launched it, or, where none did, to the call of the device's API.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.calls import Calls
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints, ints

SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("id", pa.int64()),
        ("kernels", pa.int64()),
        ("self_device_ns", pa.int64()),
        ("device_ns", pa.int64()),
    ]
)


def call_time(reel: Reel) -> pa.Table | None:
    """A row per call in which something was launched; None if the reel has no activity of a device."""
    table = reel.table("kernels", ["op", "launch", "dur_ns"])
    if not table.num_rows:
        return None
    calls = Calls.of(reel, "parent")
    op = ints(table, "op")
    row = calls.rows(ints(table, "process"), np.where(op == NOTHING, ints(table, "launch"), op))
    known = row != NOTHING
    row, dur = row[known], np.maximum(ints(table, "dur_ns", 0)[known], 0)
    count = len(calls.id)
    kernels, own = _added(row, np.ones(len(row), np.int64), count), _added(row, dur, count)
    parent, whole = calls.parents(), own.copy()
    row, sums = np.flatnonzero(kernels), own[kernels > 0]
    while len(row := parent[row]):  # each round goes to the calls around
        inside = row != NOTHING
        row, place = np.unique(row[inside], return_inverse=True)
        sums = _added(place, sums[inside], len(row))
        whole[row] += sums
    chosen = np.flatnonzero((kernels > 0) | (whole > 0))
    columns = (calls.process, calls.id, kernels, own, whole)
    return pa.Table.from_arrays([pa.array(column[chosen]) for column in columns], names=SCHEMA.names).cast(SCHEMA)


def _added(place: Ints, values: Ints, count: int) -> Ints:
    """The sum of the values of each place."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, place, values)
    return sums
