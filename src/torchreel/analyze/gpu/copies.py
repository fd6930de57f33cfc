"""How much was copied in which direction, and how long that took. Sets of memory are the direction Memset."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.activities import COPY, SET, Activities
from torchreel.reel.columns import NOTHING

SCHEMA = pa.schema([("direction", pa.string()), ("count", pa.int64()), ("bytes", pa.int64()), ("ns", pa.int64())])


def copies(found: Activities) -> pa.Table:
    """A row per direction, the one that took longest first; bytes are those of the copies that say how many."""
    of_sets = len(found.words.directions)
    direction = np.where(found.kind == SET, of_sets, found.direction % of_sets)  # NOTHING is the last word
    chosen = np.isin(found.kind, (COPY, SET))
    direction, time = direction[chosen], found.dur[chosen]
    size = np.where(found.bytes == NOTHING, 0, found.bytes)[chosen]
    words = [*found.words.directions, "Memset"]
    rows = [
        {
            "direction": words[number],
            "count": int((direction == number).sum()),
            "bytes": int(size[direction == number].sum()),
            "ns": int(time[direction == number].sum()),
        }
        for number in np.unique(direction).tolist()
    ]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: (-row["ns"], row["direction"])), SCHEMA)
