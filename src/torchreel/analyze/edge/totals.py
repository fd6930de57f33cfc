"""Totals: a run of a deployed model as a whole."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchreel.analyze.edge.rates import rate

if TYPE_CHECKING:
    import duckdb


_UNEVEN = 1.5
"""The upper quartile over the lower: on a quiet machine it is below 1.2."""


@dataclass(frozen=True)
class RunTotals:
    runs: int
    ns: int  # of a run: the median and the quartiles
    low_ns: int
    high_ns: int
    ops_ns: int  # of it in ops, in the run of the median: this and the next are the whole of it
    between_ns: int  # of it in none
    ops: float  # ops of a run
    flops: int | None  # of those ops that a formula is known for; None if there is none
    peak_bytes: int | None  # the most of all runs; None if memory was not recorded

    def share(self, ns: int) -> float:
        """The part of a run's time, from 0 to 1."""
        return ns / self.ns if self.ns else 0.0

    @property
    def is_uneven(self) -> bool:
        """Whether the runs differ so much that medians of parts need not add up to that of the whole."""
        return self.high_ns > _UNEVEN * self.low_ns

    @property
    def flops_per_s(self) -> float | None:
        return rate(self.flops, self.ns)


def run_totals(connection: duckdb.DuckDBPyConnection) -> RunTotals:
    """A run as a whole, from the tables that place_ops made."""
    durations = _column(connection, "SELECT dur_ns FROM runs ORDER BY run")
    runs = len(durations)
    low, middle, high = statistics.quantiles(durations, n=4, method="inclusive") if runs > 1 else durations * 3
    in_ops = _of_the_middle(durations, _column(connection, _BUSY))
    ops, flops = connection.sql("SELECT count(*), sum(flops)::BIGINT FROM shown").fetchall()[0]
    peak = connection.sql(_PEAK).fetchall()[0][0]
    return RunTotals(
        runs=runs,
        ns=round(middle),
        low_ns=round(low),
        high_ns=round(high),
        ops_ns=in_ops,
        between_ns=round(middle) - in_ops,
        ops=ops / runs,
        flops=None if flops is None else round(flops / runs),
        peak_bytes=peak,
    )


def _of_the_middle(durations: list[int], values: list[int]) -> int:
    """The value of the run whose duration is the median, or the mean of the two that it lies between."""
    ordered = sorted(range(len(durations)), key=durations.__getitem__)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return round(statistics.mean(values[run] for run in middle))


# Of each run, the time in which at least one op was open, on whichever thread.
_BUSY = """
    SELECT coalesce(sum(greatest(0, b.end_ns - greatest(b.start_ns, coalesce(b.before, b.start_ns)))), 0)::BIGINT
    FROM runs AS r LEFT JOIN (
        SELECT p.run, o.start_ns, o.start_ns + o.dur_ns AS end_ns,
            max(o.start_ns + o.dur_ns) OVER (
                PARTITION BY p.run ORDER BY o.start_ns, o.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS before
        FROM placed AS p JOIN ops AS o ON o.process = p.process AND o.id = p.id WHERE p.outer_id = p.id
    ) AS b ON b.run = r.run GROUP BY r.run ORDER BY r.run"""

# How far the level of a device rose within a run, above where it was before the run's first event.
_PEAK = """
    SELECT CASE WHEN EXISTS (FROM allocs) THEN coalesce(max(peak), 0)::BIGINT END FROM (
        SELECT greatest(0, max(a.total) - arg_min(a.total - CASE a.action WHEN 'alloc' THEN a.size
            WHEN 'free' THEN -coalesce(a.size, 0) ELSE 0 END, a.id)) AS peak
        FROM allocs AS a ASOF JOIN runs AS r ON r.process = a.process AND a.time_ns >= r.start_ns
        WHERE a.time_ns <= r.end_ns AND a.action IN ('alloc', 'free') GROUP BY r.run, a.process, a.device
    )"""


def _column(connection: duckdb.DuckDBPyConnection, query: str) -> list[int]:
    return [int(value or 0) for (value,) in connection.sql(query).fetchall()]
