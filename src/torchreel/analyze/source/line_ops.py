"""Line ops: which ops each line of the source ran, and what each of them cost there.

A call counts as the innermost line of its stack, as it does in `lines`: the calls of a line add up to the line's
`calls`, `self_ns`, `alloc_bytes` and `flops`, those with `backward` to its `backward_ns`, and all of them together to
the calls that have a stack, to the nanosecond.
"""

from __future__ import annotations

import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.analyze.source.backward_calls import mark_backward_calls
from torchreel.analyze.source.placed_stacks import place_stacks
from torchreel.analyze.source.stack_costs import CALLS, SUMS
from torchreel.reel import Reel

_LINE_OPS = f"""
    WITH
    innermost AS (SELECT process, stack, arg_min(place, position) AS place FROM placed_stacks GROUP BY ALL),
    ran AS (
        SELECT o.process, o.stack, o.name AS op, coalesce(o.overload, '') AS overload, b.id IS NOT NULL AS backward,
            {SUMS}
        FROM {CALLS} WHERE o.stack >= 0 GROUP BY ALL
    )
    SELECT file AS path, line, op, overload, backward, sum(calls)::BIGINT AS calls, sum(self_ns)::BIGINT AS self_ns,
        sum(alloc_bytes)::BIGINT AS alloc_bytes, sum(flops)::BIGINT AS flops
    FROM ran JOIN innermost USING (process, stack) JOIN places USING (place)
    GROUP BY path, line, op, overload, backward
    ORDER BY path, line, self_ns DESC, op, overload, backward"""


def line_ops(reel: Reel) -> pa.Table:
    """The ops of each line, its costliest first. `backward` tells calls of kind backward, and all that these called.

    Columns: path, line, op, overload, backward, calls, self_ns, alloc_bytes, flops (null where no formula is known).
    """
    with opened(reel, ("ops", "stacks", "frames")) as connection:
        mark_backward_calls(connection)
        place_stacks(connection)
        table: pa.Table = connection.sql(_LINE_OPS).to_arrow_table()
        return table
