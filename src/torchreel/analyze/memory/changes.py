"""What changed between two moments: what each line, module, op or category had at both, and what came and went."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from torchreel.analyze.memory.model.device import DeviceMemory
from torchreel.reel.columns import Ints, Mask

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("before", pa.int64()),  # bytes that it held at the first moment
        ("after", pa.int64()),
        ("change", pa.int64()),
        ("made", pa.int64()),  # blocks that were made between the two
        ("made_bytes", pa.int64()),
        ("freed", pa.int64()),
        ("freed_bytes", pa.int64()),
    ]
)


def changes(memory: DeviceMemory, by: str, first: int, last: int) -> pa.Table:
    """Between the moments after two events; those that grew most come first, those without any change are left out."""
    blocks, labels = memory.history.blocks, memory.labels(by)
    count = len(labels.texts)
    made = (blocks.start > first) & (blocks.start <= last)
    freed = (blocks.end > first) & (blocks.end <= last) & (blocks.start < blocks.end)
    lived = (blocks.start <= first) & (blocks.end > first)
    live = (blocks.start <= last) & (blocks.end > last)

    def total(mask: Mask) -> Ints:
        sums = np.zeros(count, np.int64)
        np.add.at(sums, labels.number[mask], blocks.size[mask])
        return sums

    counts = {name: np.bincount(labels.number[mask], minlength=count) for name, mask in (("m", made), ("f", freed))}
    before, after = total(lived), total(live)
    busy = np.flatnonzero((counts["m"] > 0) | (counts["f"] > 0))
    order = busy[np.lexsort((-np.abs(after - before)[busy], -(after - before)[busy]))]
    return pa.table(
        {
            "name": [labels.texts[n] for n in order],
            "before": before[order],
            "after": after[order],
            "change": (after - before)[order],
            "made": counts["m"][order],
            "made_bytes": total(made)[order],
            "freed": counts["f"][order],
            "freed_bytes": total(freed)[order],
        },
        schema=SCHEMA,
    )
