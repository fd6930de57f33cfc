"""Own lines: for each stack the line that says most about it, the innermost of the user's own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from torchreel.analyze.memory.model.stacks import stacks_of
from torchreel.reel import Reel


def own_lines(reel: Reel) -> pa.Table:
    """A row per stack: process, id, and the line as `torchreel memory` names it: src/train.py:30 main."""
    processes, ids, texts = [], [], []
    for process in np.unique(reel.table("stacks", ["id"])["process"].to_numpy()):
        stacks = stacks_of(reel, int(process))
        for row, stack in enumerate(stacks.id):
            processes.append(int(process))
            ids.append(int(stack))
            texts.append(stacks.line(row).text)
    return pa.table(
        {
            "process": pa.array(processes, pa.int32()),
            "id": pa.array(ids, pa.int32()),
            "text": pa.array(texts, pa.string()),
        }
    )
