"""How long does a call take that is replayed as a graph, against eager, torch.compile and AOTInductor?"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from benchmarks.graphs_variants import (
    AOTI,
    AOTI_RAW,
    COMPILE_OPTIONS,
    EAGER,
    GRAPHED,
    OURS,
    RELAXED,
    Failed,
    Ready,
    ready,
)
from benchmarks.graphs_windows import interleaved, ratio
from benchmarks.graphs_workloads import WORKLOADS, Workload
from benchmarks.result import Goal, Result, Spread, number
from benchmarks.rounds import in_words

ROUNDS = 20
WINDOWS = 5

# What --quick measures: to compile all of it takes many minutes.
QUICK_WORKLOADS = ("MLP 3x64", "training step, batch 1")
QUICK_VARIANTS = (EAGER, GRAPHED, RELAXED, "compile")
EVERY_VARIANT = (EAGER, *OURS, *COMPILE_OPTIONS, AOTI, AOTI_RAW)


def measure(quick: bool) -> list[Result]:
    torch.set_num_threads(1)
    results = []
    for name in QUICK_WORKLOADS if quick else WORKLOADS:
        results += _workload(name, WORKLOADS[name], QUICK_VARIANTS if quick else EVERY_VARIANT, quick)
    return results


def _workload(name: str, workload: Workload, variants: Iterable[str], quick: bool) -> list[Result]:
    missing = workload.missing()
    if missing is not None:
        return [Result(f"{name}: graphed against eager, ratio", None, workload.against_eager, detail=missing)]
    if not workload.compiled:
        variants = (EAGER, *OURS)
    if not workload.exported:
        variants = [variant for variant in variants if variant not in (AOTI, AOTI_RAW)]
    made = {variant: ready(variant, workload) for variant in variants}
    works = {variant: one for variant, one in made.items() if isinstance(one, Ready)}
    failed = {variant: one.reason for variant, one in made.items() if isinstance(one, Failed)}
    rounds, windows = (2, 2) if quick else (ROUNDS, WINDOWS)
    times = interleaved(works, rounds=rounds, windows=windows)
    results = []
    for ours in OURS:
        exact = ours == GRAPHED
        results.append(_against(name, ours, EAGER, times, failed, workload.against_eager if exact else None))
        if workload.compiled:
            goal = workload.against_compiled if exact else None
            results.append(_against(name, ours, _best_compiled(times), times, failed, goal))
    return [*results, _everything(name, times, failed)]


def _best_compiled(times: dict[str, list[float]]) -> str:
    compiled = [variant for variant in times if variant not in (EAGER, *OURS)]
    return min(compiled, key=lambda variant: Spread.of(times[variant]).median, default="the best that compiles")


def _against(
    name: str, ours: str, theirs: str, times: dict[str, list[float]], failed: dict[str, str], goal: Goal | None
) -> Result:
    what = f"{name}: {ours} against {theirs}, ratio"
    for variant in (ours, theirs):
        if variant not in times:
            return Result(what, None, goal, detail=failed.get(variant, "nothing could be compiled"))
    mine, other = Spread.of(times[ours]), Spread.of(times[theirs])
    detail = f"{in_words(mine, 'µs', 1e-3)} against {in_words(other, 'µs', 1e-3)}"
    return Result(what, ratio(times[ours], times[theirs]), goal, detail=detail)


def _everything(name: str, times: dict[str, list[float]], failed: dict[str, str]) -> Result:
    """Eager's time, and beside it that of everything else."""
    texts = [f"{variant} {number(Spread.of(values).median / 1e3)}" for variant, values in times.items()]
    texts += [f"{variant} not measured ({reason})" for variant, reason in failed.items()]
    eager = Spread.of([value / 1e3 for value in times[EAGER]])
    return Result(f"{name}: eager", eager, unit="µs", detail="; ".join(texts))
