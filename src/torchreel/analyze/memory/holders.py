"""Who holds memory at a moment: the blocks that live then, added up by line, module, op or category."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from torchreel.analyze.memory.model.categories import CATEGORIES
from torchreel.analyze.memory.model.device import DeviceMemory

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("bytes", pa.int64()),
        ("percent", pa.float64()),  # of all that lives then
        ("blocks", pa.int64()),
        ("largest", pa.int64()),  # bytes of the largest single block
        ("categories", pa.string()),  # of its blocks, those with most bytes first
    ]
)


def holders(memory: DeviceMemory, by: str = "stack", position: int | None = None) -> pa.Table:
    """The holders after an event, the greatest first; without a position, at the peak of allocated memory."""
    history = memory.history
    if position is None:
        position = int(history.allocated.argmax()) - 1
    position = min(position, history.events - 1)
    alive = history.alive(position)
    size = history.blocks.size[alive]
    labels = memory.labels(by)
    number = labels.number[alive]
    count = len(labels.texts)
    total = np.bincount(number, size, count).astype(np.int64)
    blocks = np.bincount(number, minlength=count)
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, number, size)
    category = np.zeros((count, len(CATEGORIES)), np.int64)
    np.add.at(category, (number, memory.categories[alive]), np.maximum(size, 1))
    everything = max(int(size.sum()), 1)
    rows = [n for n in np.argsort(-total, kind="stable") if blocks[n]]
    return pa.table(
        {
            "name": [labels.texts[n] for n in rows],
            "bytes": [int(total[n]) for n in rows],
            "percent": [100.0 * int(total[n]) / everything for n in rows],
            "blocks": [int(blocks[n]) for n in rows],
            "largest": [int(largest[n]) for n in rows],
            "categories": [", ".join(CATEGORIES[c] for c in np.argsort(-category[n]) if category[n][c]) for n in rows],
        },
        schema=SCHEMA,
    )
