"""What each op of a deployed model costs in a run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchreel.analyze.edge.inputs import input_bytes
from torchreel.analyze.edge.rates import median_ns, rate
from torchreel.analyze.edge.totals import RunTotals

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class OpCost:
    """All calls of one op by one backend."""

    name: str
    backend: str | None  # None is PyTorch itself
    calls: float  # of a run
    ns: int
    share: float  # of the time of a run, from 0 to 1
    flops: int | None
    input_bytes: int | None
    alloc_bytes: int | None
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def flops_per_s(self) -> float | None:
        return rate(self.flops, self.ns)


def op_costs(connection: duckdb.DuckDBPyConnection, totals: RunTotals, with_memory: bool) -> list[OpCost]:
    rows = connection.sql("""
        SELECT name, backend, sum(calls), list(ns), sum(flops)::BIGINT, sum(bytes)::BIGINT FROM (
            SELECT run, name, backend, count(*) AS calls, sum(ns)::BIGINT AS ns, sum(flops)::BIGINT AS flops,
                sum(bytes)::BIGINT AS bytes
            FROM shown GROUP BY ALL
        ) GROUP BY ALL""").fetchall()
    read, counted = _input_bytes(connection), _counters(connection)
    costs = [
        OpCost(
            name=name,
            backend=backend,
            calls=int(calls) / totals.runs,
            ns=median_ns(times, totals.runs),
            share=totals.share(median_ns(times, totals.runs)),
            flops=None if flops is None else round(flops / totals.runs),
            input_bytes=None if (given := read.get((name, backend))) is None else round(given / totals.runs),
            alloc_bytes=round((allocated or 0) / totals.runs) if with_memory and backend is None else None,
            counters={counter: round(value / totals.runs) for counter, value in counted[name, backend].items()},
        )
        for name, backend, calls, times, flops, allocated in rows
    ]
    return sorted(costs, key=lambda op: (-op.ns, op.name, op.backend or ""))


def _input_bytes(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str | None], int | None]:
    """Of all calls of an op; None if it is not known of one of them."""
    rows = connection.sql("""
        SELECT s.name, s.backend, i.dims, i.dtypes, count(*)
        FROM shown AS s LEFT JOIN inputs AS i ON i.process = s.process AND i.id = s.inputs GROUP BY ALL""").fetchall()
    found: dict[tuple[str, str | None], int | None] = {}
    for name, backend, dims, dtypes, calls in rows:
        before, given = found.get((name, backend), 0), input_bytes(dims, dtypes)
        found[name, backend] = None if before is None or given is None else before + calls * given
    return found


def _counters(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str | None], dict[str, int]]:
    rows = connection.sql("""
        SELECT s.name, s.backend, c.name, sum(c.value)::BIGINT
        FROM shown AS s JOIN counters AS c ON c.process = s.process AND c.op = s.id
        GROUP BY ALL ORDER BY c.name""").fetchall()
    found: dict[tuple[str, str | None], dict[str, int]] = defaultdict(dict)
    for name, backend, counter, value in rows:
        found[name, backend][counter] = value
    return found
