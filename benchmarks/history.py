"""What does it cost to keep every alloc and free with its Python stack, against plain glibc without a history?"""

from __future__ import annotations

from benchmarks.result import Goal, Result, Spread, number
from benchmarks.worker import CACHING, CACHING_HISTORY, GLIBC, GLIBC_HISTORY, PASSING, compare

ROUNDS = 8
WINDOWS = 10

_GOALS = {("small op", CACHING_HISTORY): Goal(1.10)}


def measure(quick: bool) -> list[Result]:
    rounds, windows = (1, 4) if quick else (ROUNDS, WINDOWS)
    return [result for program in ("small op", "small MLP") for result in _results(program, rounds, windows)]


def _results(program: str, rounds: int, windows: int) -> list[Result]:
    variants = [CACHING_HISTORY, CACHING, GLIBC_HISTORY, PASSING]
    measured = compare(program, GLIBC, variants, rounds=rounds, windows=windows)
    results = []
    for variant in variants:
        pairs = measured.pairs[variant]
        added, bare = Spread.of([pair.added for pair in pairs]).median, Spread.of([pair.bare for pair in pairs]).median
        faults = Spread.of(measured.faults[variant]).median
        results.append(
            Result(
                f"{program}, {variant}: CPU time against glibc, ratio",
                Spread.of([1 + pair.slowdown for pair in pairs]),
                _GOALS.get((program, variant)),
                detail=f"{added:+,.0f} ns to {number(bare)} ns; page faults in a step {number(faults)}",
            )
        )
    return results
