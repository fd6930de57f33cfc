"""Hardware counters of kernels, summed by kernel, op and module.

A trace of CUPTI's counters may have ranges instead of kernels, at times that mean nothing. If it has as many of them as
launches, the k-th range is the k-th launch, and has the op and module around that. `count` is the number of kernels, or
ranges, that were added up.
"""

from __future__ import annotations

import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.reel import Reel


def counters(reel: Reel) -> pa.Table:
    """A row per counter, kernel, op and module, the greatest sum of each counter first."""
    with opened(reel, ("kernel_counters", "kernels", "ops", "modules")) as connection:
        table: pa.Table = connection.sql(_COUNTERS).to_arrow_table()
        return table


_COUNTERS = """
    WITH places AS (  -- the ranges that name no kernel, in their order
        SELECT process, start_ns, row_number() OVER (PARTITION BY process ORDER BY start_ns) AS place
        FROM (SELECT DISTINCT process, start_ns FROM kernel_counters WHERE kernel IS NULL)
    ), launches AS (
        SELECT process, id, parent, module, row_number() OVER (PARTITION BY process ORDER BY start_ns, id) AS place
        FROM ops WHERE kind IN ('runtime', 'driver') AND name LIKE '%LaunchKernel%'
            AND process IN (SELECT process FROM places)
    ), launched AS (
        SELECT places.process, places.start_ns, launches.parent AS op, launches.module
        FROM places JOIN launches USING (process, place)
        WHERE (SELECT count(*) FROM places AS p WHERE p.process = places.process)
            = (SELECT count(*) FROM launches AS l WHERE l.process = places.process)
    ), found AS (
        SELECT c.process, c.name AS counter, coalesce(k.name, c."range") AS kernel, c.value,
            CASE WHEN c.kernel IS NULL THEN l.op ELSE k.op END AS op,
            CASE WHEN c.kernel IS NULL THEN l.module ELSE k.module END AS module
        FROM kernel_counters AS c
        LEFT JOIN kernels AS k ON k.process = c.process AND k.id = c.kernel
        LEFT JOIN launched AS l ON c.kernel IS NULL AND l.process = c.process AND l.start_ns = c.start_ns
    )
    SELECT f.process, f.counter, f.kernel, o.name AS op, m.path AS module, count(*) AS count, sum(f.value) AS value
    FROM found AS f
    LEFT JOIN ops AS o ON o.process = f.process AND o.id = f.op
    LEFT JOIN modules AS m ON m.process = f.process AND m.id = f.module
    GROUP BY ALL ORDER BY f.process, counter, value DESC, kernel, op, module"""
