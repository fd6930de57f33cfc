"""How busy each device was: the time in which at least one of its kernels ran, counted once."""

from __future__ import annotations

import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.reel import Reel


def device_busy(reel: Reel, within: tuple[int, int] | None = None) -> pa.Table:
    """A row per process and device: `busy_ns` of the `wall_ns` between its first and last kernel, or in the range."""
    with opened(reel, ("kernels",)) as connection:
        return connection.sql(_BUSY, params=[None, None] if within is None else list(within)).to_arrow_table()


# Where a kernel begins after all before it have ended, what is busy begins anew.
_BUSY = """
    WITH shown AS (
        SELECT process, device, greatest(start_ns, coalesce($1::BIGINT, start_ns)) AS begin,
            least(start_ns + dur_ns, coalesce($2::BIGINT, start_ns + dur_ns)) AS end_ns
        FROM kernels
    ), placed AS (
        SELECT *, max(end_ns) OVER (
            PARTITION BY process, device ORDER BY begin, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before
        FROM shown WHERE end_ns > begin
    )
    SELECT process, device, sum(greatest(end_ns - greatest(begin, coalesce(before, begin)), 0))::BIGINT AS busy_ns,
        (coalesce($2::BIGINT, max(end_ns)) - coalesce($1::BIGINT, min(begin)))::BIGINT AS wall_ns, count(*) AS kernels
    FROM placed GROUP BY ALL ORDER BY 1, 2"""
