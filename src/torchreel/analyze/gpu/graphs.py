"""How often graphs were replayed, and how many activities they had."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.activities import Activities

SCHEMA = pa.schema([("process", pa.int32()), ("launches", pa.int64()), ("activities", pa.int64())])


def graphs(found: Activities) -> pa.Table:
    """A row per process that replayed graphs; a launch that was not recorded is not counted, its activities are."""
    rows = [
        {"process": process, "launches": len(np.unique(own.launch[own.launched])), "activities": len(own)}
        for process, own in found.take(found.replay).by_process()
    ]
    return pa.Table.from_pylist(rows, SCHEMA)
