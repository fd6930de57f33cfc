"""The time of devices by the user's ranges: an activity belongs to the innermost range around its launch.

It does not matter when the activity ran: devices lag behind. `device_ns` is the sum over the activities, `busy_ns` the
time in which at least one of them ran. An activity whose launch was not recorded belongs to the range around its op.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.activities import Activities, groups
from torchreel.analyze.gpu.calls import Calls, nearest
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING

SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("name", pa.string()),
        ("calls", pa.int64()),
        ("activities", pa.int64()),
        ("device_ns", pa.int64()),
        ("busy_ns", pa.int64()),
    ]
)


def ranges(reel: Reel, found: Activities) -> pa.Table:
    """A row per process and name of a range, the one that took longest first; what is in no range has a null name."""
    if not len(found):
        return SCHEMA.empty_table()
    calls = Calls.of(reel, "parent", "kind", "name")
    inside = np.where(found.launched, found.launch, found.op)
    around = nearest(calls.rows(found.process, inside), calls.of_kind("range"), calls.parents())
    name, names = calls.texts("name")
    named = np.where(around == NOTHING, NOTHING, np.append(name, NOTHING)[around])
    order = np.lexsort((named, found.process))
    chosen, around, named = found.take(order), around[order], named[order]
    rows: list[dict[str, Any]] = []
    for begin, end in groups(chosen.process, named):
        mine, number = chosen.take(slice(begin, end)), int(named[begin])
        rows.append(
            {
                "process": int(mine.process[0]),
                "name": None if number == NOTHING else names[number],
                "calls": 0 if number == NOTHING else len(np.unique(around[begin:end])),
                "activities": len(mine),
                "device_ns": int(mine.dur.sum()),
                "busy_ns": sum(own.busy().length for _, _, own in mine.by_device()),
            }
        )
    return pa.Table.from_pylist(sorted(rows, key=lambda row: (-row["device_ns"], row["process"])), SCHEMA)
