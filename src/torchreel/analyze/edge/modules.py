"""What each module of a deployed model costs in a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchreel.analyze.edge.rates import median_ns, rate
from torchreel.analyze.edge.totals import RunTotals

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class ModuleCost:
    path: str  # "" for ops of which it is not known
    class_name: str
    self_ns: int
    total_ns: int
    share: float  # of the total in the time of a run, from 0 to 1
    flops: int | None  # this and what follows with its submodules
    alloc_bytes: int | None

    @property
    def flops_per_s(self) -> float | None:
        return rate(self.flops, self.total_ns)


@dataclass
class _Sum:
    """What is added up of a module while its submodules are looked through."""

    own: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # run -> time
    total: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    flops: int | None = None
    bytes: int | None = None

    def add(self, run: int, ns: int, flops: int | None, allocated: int | None, own: bool) -> None:
        self.total[run] += ns
        if own:
            self.own[run] += ns
        self.flops = self.flops if flops is None else flops + (self.flops or 0)
        self.bytes = self.bytes if allocated is None else allocated + (self.bytes or 0)


def module_costs(connection: duckdb.DuckDBPyConnection, totals: RunTotals, with_memory: bool) -> list[ModuleCost]:
    known = {
        (process, module): (path, class_name, parent)
        for process, module, path, class_name, parent in connection.sql(
            'SELECT process, id, path, "class", parent FROM modules'
        ).fetchall()
    }
    if not known:
        return []
    sums: dict[tuple[str, str], _Sum] = defaultdict(_Sum)
    rows = connection.sql("""
        SELECT run, process, module, sum(ns)::BIGINT, sum(flops)::BIGINT, sum(bytes)::BIGINT
        FROM shown GROUP BY ALL""").fetchall()
    for run, process, module, ns, flops, allocated in rows:
        for depth, holder in enumerate(_chain(known, process, module)):
            sums[holder].add(run, ns, flops, allocated, own=depth == 0)
    costs = [
        ModuleCost(
            path=path,
            class_name=class_name,
            self_ns=median_ns(one.own.values(), totals.runs),
            total_ns=(total := median_ns(one.total.values(), totals.runs)),
            share=totals.share(total),
            flops=None if one.flops is None else round(one.flops / totals.runs),
            alloc_bytes=round((one.bytes or 0) / totals.runs) if with_memory else None,
        )
        for (path, class_name), one in sums.items()
    ]
    return sorted(costs, key=lambda module: (-module.total_ns, module.path))


def _chain(
    known: dict[tuple[int, int], tuple[str, str, int | None]], process: int, module: int | None
) -> Iterator[tuple[str, str]]:
    """The module and those that hold it, by path and class; a damaged table may hold one that holds itself."""
    if module is None or (process, module) not in known:
        yield "", ""
        return
    seen = set()
    while module is not None and module not in seen and (process, module) in known:
        seen.add(module)
        path, class_name, parent = known[process, module]
        yield path or "", class_name or ""
        module = parent
