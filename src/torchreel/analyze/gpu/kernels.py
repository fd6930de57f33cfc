"""The time of kernels, copies and sets by their name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.activities import Activities

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("kind", pa.string()),
        ("calls", pa.int64()),
        ("device_ns", pa.int64()),
        ("device_percent", pa.float64()),
        ("min_ns", pa.int64()),
        ("max_ns", pa.int64()),
        ("average_ns", pa.int64()),
    ]
)


def kernels(found: Activities) -> pa.Table:
    """A row per name and kind, the one that took longest first; percentages are of the sum of all times."""
    names, kinds = len(found.words.names), len(found.words.kinds)
    key = (found.name % names) * kinds + found.said % kinds  # what has none has the last word
    groups, place = np.unique(key, return_inverse=True)
    dur = found.dur
    calls = np.bincount(place, minlength=len(groups))
    time, least, most = (np.zeros(len(groups), np.int64) for _ in range(3))
    np.add.at(time, place, dur)
    least[:] = np.iinfo(np.int64).max
    np.minimum.at(least, place, dur)
    np.maximum.at(most, place, dur)
    name = [found.words.names[number] for number in (groups // kinds).tolist()]
    kind = [found.words.kinds[number] for number in (groups % kinds).tolist()]
    share = 100 * time / max(int(time.sum()), 1)
    average = (2 * time + calls) // np.maximum(2 * calls, 1)  # rounded
    table = pa.Table.from_arrays(
        [pa.array(one) for one in (name, kind, calls, time, share, least, most, average)], schema=SCHEMA
    )
    return table.sort_by([("device_ns", "descending"), ("name", "ascending"), ("kind", "ascending")])
