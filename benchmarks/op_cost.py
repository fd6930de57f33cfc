"""What does one tiny op cost more while it is recorded, against torch.profiler with the same option?"""

from __future__ import annotations

import time

import torch

from benchmarks.observers import (
    EmptyCallback,
    IdleAllocator,
    Nothing,
    Observer,
    TorchProfiler,
    Torchreel,
    settle,
    writing_time,
)
from benchmarks.result import Goal, Result, Spread
from benchmarks.rounds import Pair, added, in_words, interleave, ratio

WARM_UP = 1_000
OPS = 5_000
WINDOWS = 8
ROUNDS = 25
# The writer comes five times in a second: its fixed costs are spread over many ops.
WRITTEN_OPS = 40_000

# Options of torchreel, those of torch.profiler, the goal.
COUNTERPARTS = {
    "ops": ((), (), 0.30),
    "shapes": (("shapes",), ("record_shapes",), 0.33),
    "memory": (("memory",), ("profile_memory",), 0.30),
    "stacks": (("stacks",), ("with_stack",), 0.30),
    "shapes, memory, stacks": (("shapes", "memory", "stacks"), ("record_shapes", "profile_memory", "with_stack"), 0.25),
}


def run(count: int, a: torch.Tensor, b: torch.Tensor) -> None:
    add = torch.add
    for _ in range(count):
        add(a, b)


def window(observer: Observer) -> float:
    """CPU nanoseconds per op, of the thread that calls them."""
    one = torch.ones(1)
    with torch.no_grad(), observer.watch():
        run(WARM_UP, one, one)
        start = time.thread_time_ns()
        run(OPS, one, one)
        return (time.thread_time_ns() - start) / OPS


def writing(observer: Observer) -> float:
    """CPU nanoseconds per op, of bringing to disk what was recorded of it."""
    one = torch.ones(1)
    return writing_time(observer, lambda: run(WRITTEN_OPS, one, one)) / WRITTEN_OPS


def _groups() -> list[list[Observer]]:
    """Each of torch.profiler's variants with what it is compared to."""
    groups: dict[tuple[str, ...], list[Observer]] = {}
    for ours, theirs, _ in COUNTERPARTS.values():
        groups.setdefault(theirs, [TorchProfiler(theirs)]).append(Torchreel(ours))
    groups[()].append(EmptyCallback())
    groups[("record_shapes",)].append(EmptyCallback(inputs=True))
    return [*groups.values(), [IdleAllocator()]]


def measure(quick: bool) -> list[Result]:
    settle()
    rounds, windows = (2, 2) if quick else (ROUNDS, WINDOWS)
    return _results(interleave(window, Nothing(), _groups(), writing, rounds=rounds, windows=windows))


def _results(pairs: dict[Observer, list[Pair]]) -> list[Result]:
    results: list[Result] = []
    for what, (ours, theirs, limit) in COUNTERPARTS.items():
        mine, other = pairs[Torchreel(ours)], pairs[TorchProfiler(theirs)]
        detail = f"{in_words(added(mine), 'ns')} against {in_words(added(other), 'ns')}"
        results.append(Result(f"{what}: added ns per op, ratio", ratio(mine, other), Goal(limit), detail=detail))
    for options, floor, goal in (((), EmptyCallback(), Goal(1.25)), (("shapes",), EmptyCallback(inputs=True), None)):
        mine, other = pairs[Torchreel(options)], pairs[floor]
        detail = f"{in_words(added(mine), 'ns')} against {in_words(added(other), 'ns')}"
        what = f"{', '.join(options) or 'ops'} against {floor.name}, ratio"
        results.append(Result(what, ratio(mine, other), goal, detail=detail))
    results.append(Result("not recording, after a recording with memory", added(pairs[IdleAllocator()]), unit="ns"))
    results.append(Result("the bare op", Spread.of([pair.bare for pair in pairs[Torchreel()]]), unit="ns"))
    return results
