"""Peak lines: how many bytes lived at the peak of memory that each line of the source had made.

A block is of the line by which `torchreel memory` calls it: the innermost of the user's own in its stack, in backward
in that of its forward call. Where a library's line is further in, it is of that one, too. Each device has its own peak,
that of allocated bytes.
"""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa

from torchreel.analyze.memory.model.device import device_memories
from torchreel.reel import Reel

_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("line", pa.int64()),
        ("process", pa.int64()),
        ("device", pa.string()),
        ("bytes", pa.int64()),
        ("blocks", pa.int64()),
    ]
)


def peak_lines(reel: Reel) -> pa.Table:
    """The lines of blocks that lived at the peak of their device, the most bytes first.

    Columns: path, line, process, device, bytes, blocks. Blocks without a line, as those that are older than the
    recording, are not here.
    """
    held: dict[tuple[str, int, int, str], list[int]] = defaultdict(lambda: [0, 0])
    for memory in device_memories(reel):
        history = memory.history
        for block in history.alive(int(history.allocated.argmax()) - 1).tolist():
            line = memory.line(block)
            if line is None or line.frame is None:
                continue
            for frame in {(one.file, one.line) for one in (line.frame, line.via) if one is not None}:
                found = held[(*frame, history.process, history.device)]
                found[0] += int(history.blocks.size[block])
                found[1] += 1
    rows = [(*key, *held[key]) for key in sorted(held, key=lambda key: (-held[key][0], key))]
    return pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], _SCHEMA)
