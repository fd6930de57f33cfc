"""Line kernels: which work on devices each line of the source launched, and how long that took there.

A kernel is of the innermost line in the stack of the call that launched it, as calls are in `lines`; what a backward
call launched is of the line of its forward call. Kernels without such a call, or whose call has no stack, are left out.
"""

from __future__ import annotations

import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.analyze.source.placed_stacks import place_stacks
from torchreel.reel import Reel

_LINE_KERNELS = """
    WITH innermost AS (SELECT process, stack, arg_min(place, position) AS place FROM placed_stacks GROUP BY ALL)
    SELECT p.file AS path, p.line, k.device, k.name AS kernel, count(*)::BIGINT AS calls,
        sum(k.dur_ns)::BIGINT AS dur_ns
    FROM kernels AS k
    JOIN ops AS o ON o.process = k.process AND o.id = k.op
    JOIN innermost AS i ON i.process = o.process AND i.stack = o.stack
    JOIN places AS p USING (place)
    WHERE o.stack >= 0
    GROUP BY p.file, p.line, k.device, k.name
    ORDER BY path, line, dur_ns DESC, device, kernel"""


def line_kernels(reel: Reel) -> pa.Table:
    """The kernels, copies and memsets of each line, the longest first.

    Columns: path, line, device, kernel, calls, dur_ns.
    """
    with opened(reel, ("ops", "stacks", "frames", "kernels")) as connection:
        place_stacks(connection)
        table: pa.Table = connection.sql(_LINE_KERNELS).to_arrow_table()
        return table
