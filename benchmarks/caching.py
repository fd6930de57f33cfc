"""How much CPU time does a training step take with the caching allocator, against glibc and against tcmalloc?"""

from __future__ import annotations

from benchmarks.result import Goal, Result, Spread, number
from benchmarks.rounds import Pair
from benchmarks.worker import CACHING, GLIBC, TCMALLOC, Rounds, compare, tcmalloc

ROUNDS = 4
WINDOWS = 3

# The goals against glibc and against tcmalloc.
COMPARISONS = {
    "convnet": (Goal(0.5), None),
    "MLP": (Goal(0.97), Goal(1.05)),
    "transformer": (Goal(0.97), Goal(1.05)),
}


def measure(quick: bool) -> list[Result]:
    rounds, windows = (1, 1) if quick else (ROUNDS, WINDOWS)
    results = []
    for program, goals in COMPARISONS.items():
        others = [CACHING, TCMALLOC] if goals[1] is not None and tcmalloc() else [CACHING]
        results += _results(program, goals, compare(program, GLIBC, others, rounds=rounds, windows=windows))
    return results


def _results(program: str, goals: tuple[Goal, Goal | None], measured: Rounds) -> list[Result]:
    against_glibc, against_tcmalloc = goals
    caching = measured.pairs[CACHING]
    rows = [
        Result(
            f"{program}, caching against glibc: CPU time of a step, ratio",
            Spread.of([_share(pair) for pair in caching]),
            against_glibc,
            detail=_detail(measured, CACHING, GLIBC),
        )
    ]
    if against_tcmalloc is None:
        return rows
    what = f"{program}, caching against tcmalloc: CPU time of a step, ratio"
    if TCMALLOC not in measured.pairs:
        return [*rows, Result(what, None, against_tcmalloc, detail="tcmalloc is not installed")]
    both = zip(caching, measured.pairs[TCMALLOC], strict=True)
    ratios = Spread.of([_share(ours) / _share(theirs) for ours, theirs in both])
    return [*rows, Result(what, ratios, against_tcmalloc, detail=_detail(measured, CACHING, TCMALLOC))]


def _share(pair: Pair) -> float:
    """CPU time, in that of the bare windows beside it."""
    return 1 + pair.slowdown


def _detail(measured: Rounds, ours: str, theirs: str) -> str:
    values = []
    for allocator in (ours, theirs):
        pairs = measured.pairs.get(allocator)
        times = [pair.bare + pair.added for pair in pairs] if pairs else [pair.bare for pair in measured.pairs[ours]]
        values.append((times, measured.faults[allocator], measured.peaks[allocator]))
    (time, faults, peak), (other_time, other_faults, other_peak) = [
        [Spread.of(several).median for several in value] for value in values
    ]
    return (
        f"{number(time / 1e6)} against {number(other_time / 1e6)} ms; "
        f"page faults {number(faults)} against {number(other_faults)}; "
        f"peak memory {number(peak / 1e6)} against {number(other_peak / 1e6)} MB"
    )
