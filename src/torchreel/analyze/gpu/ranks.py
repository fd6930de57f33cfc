"""Collectives of several ranks side by side, in the clock of one of them.

All ranks leave a blocking collective together: what their ends differ by is the difference of their clocks. The offset
of a rank is the median of that over all such collectives that it shares with the first rank; `spread_ns` is how far the
middle half of them lies apart. Processes of one host have one clock, whatever their collectives say.
"""

from __future__ import annotations

import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.reel import Reel

# Nobody leaves these before all have entered.
_BLOCKING = "(c.name ILIKE '%all%reduce%' OR c.name ILIKE '%all%gather%' OR c.name ILIKE '%reduce%scatter%'" + (
    " OR c.name ILIKE '%all%to%all%' OR c.name ILIKE '%barrier%')"
)

# One row per collective and process, with the same `instance` on all ranks.
_ALL = """
    CREATE TEMP TABLE shared AS
    SELECT c.process, p.rank, p.host, c.id, coalesce(g.name, '') AS group_name, g.size, c.name, c.seq, c.bytes, c.peer,
        coalesce(c.start_ns, c.enter_ns) AS start_ns, c.end_ns,
        coalesce(g.name, '') || '/' || coalesce(array_to_string(g.ranks, ','), '') || '/' || c.seq AS instance,
        {blocking} AND c.peer IS NULL AS blocking
    FROM collectives AS c
    LEFT JOIN process_groups AS g ON g.process = c.process AND g.id = c."group"
    LEFT JOIN processes AS p ON p.process = c.process
    WHERE c.end_ns IS NOT NULL AND c.seq IS NOT NULL AND c.open IS NOT TRUE"""

_OFFSETS = """
    CREATE TEMP TABLE offsets AS
    WITH first AS (SELECT process, host FROM shared ORDER BY rank NULLS LAST, process LIMIT 1)
    SELECT s.process, any_value(s.rank) AS rank, count(r.id) AS collectives,
        CASE WHEN s.process = first.process OR s.host = first.host THEN 0
            ELSE coalesce(round(median(s.end_ns - r.end_ns)), 0)::BIGINT END AS offset_ns,
        round(quantile_cont(s.end_ns - r.end_ns, 0.75) - quantile_cont(s.end_ns - r.end_ns, 0.25))::BIGINT AS spread_ns
    FROM shared AS s CROSS JOIN first
    LEFT JOIN shared AS r ON r.process = first.process AND r.instance = s.instance AND s.blocking AND r.blocking
        AND r.name = s.name
    GROUP BY s.process, first.process, s.host, first.host"""

_STRAGGLERS = """
    SELECT group_name AS "group", name, seq, count(*) AS ranks, max_by(s.process, s.start_ns - offset_ns) AS process,
        max_by(s.rank, s.start_ns - offset_ns) AS rank,
        (max(s.start_ns - offset_ns) - min(s.start_ns - offset_ns))::BIGINT AS late_ns,
        (min(s.end_ns - offset_ns) - max(s.start_ns - offset_ns))::BIGINT AS transfer_ns
    FROM shared AS s JOIN offsets USING (process)
    WHERE peer IS NULL
    GROUP BY instance, group_name, name, seq HAVING count(*) > 1 ORDER BY late_ns DESC, "group", name, seq"""

_TABLES = ("collectives", "process_groups", "processes")


def stragglers(reel: Reel) -> pa.Table:
    """Per collective that several ranks have: the one that started last, and how long after the first.

    `transfer_ns` is from that start to the first end: what is left of the collective without waiting.
    """
    return _asked(reel, _STRAGGLERS)


def clocks(reel: Reel) -> pa.Table:
    """The offset of each process's clock from that of the first rank, and from how many collectives it is known."""
    return _asked(reel, "SELECT * FROM offsets ORDER BY process")


def transfers(reel: Reel) -> pa.Table:
    """For each collective of a process, the time from the last rank's start to its own end; one rank alone: its own."""
    return _asked(
        reel,
        "SELECT s.process, s.id, greatest(s.end_ns - offset_ns - max(s.start_ns - offset_ns) OVER"
        " (PARTITION BY instance, name), 0)::BIGINT AS transfer_ns FROM shared AS s JOIN offsets USING (process)"
        " WHERE peer IS NULL",
    )


def _asked(reel: Reel, question: str) -> pa.Table:
    with opened(reel, _TABLES) as connection:
        connection.execute(_ALL.format(blocking=_BLOCKING))
        connection.execute(_OFFSETS)
        table: pa.Table = connection.sql(question).to_arrow_table()
        return table
