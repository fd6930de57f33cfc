"""What does one tiny op cost more while it is recorded, against torch.profiler with the same option?"""

from __future__ import annotations

import time

import torch

from benchmarks.observers import EmptyCallback, IdleAllocator, Nothing, Observer, TorchProfiler, Torchreel, settle
from benchmarks.result import Goal, Result, Spread
from benchmarks.rounds import Pair, added, in_words, interleave, ratio

# Long enough that the fixed cost of a flush, of which there are five in a second, does not count for much.
OPS = 20_000
WINDOWS = 4
ROUNDS = 25
WARM_UP = 1_000

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
    """CPU nanoseconds of the whole process per op; what was recorded is on disk at the end of them."""
    a, b = torch.ones(1), torch.ones(1)
    with torch.no_grad(), observer.watch() as flush:
        run(WARM_UP, a, b)
        flush()
        start = time.process_time_ns()
        run(OPS, a, b)
        flush()
        return (time.process_time_ns() - start) / OPS


def _groups() -> list[list[Observer]]:
    """Each of torch.profiler's variants with what it is compared to."""
    groups: dict[tuple[str, ...], list[Observer]] = {}
    for ours, theirs, _ in COUNTERPARTS.values():
        groups.setdefault(theirs, [TorchProfiler(theirs)]).append(Torchreel(ours))
    groups[()].append(EmptyCallback())
    return [*groups.values(), [IdleAllocator()]]


def measure(quick: bool) -> list[Result]:
    settle()
    return _results(
        interleave(window, Nothing(), _groups(), rounds=2 if quick else ROUNDS, windows=2 if quick else WINDOWS)
    )


def _results(pairs: dict[Observer, list[Pair]]) -> list[Result]:
    results: list[Result] = []
    for what, (ours, theirs, limit) in COUNTERPARTS.items():
        mine, other = pairs[Torchreel(ours)], pairs[TorchProfiler(theirs)]
        detail = f"{in_words(added(mine), 'ns')} against {in_words(added(other), 'ns')}"
        results.append(Result(f"{what}: added ns per op, ratio", ratio(mine, other), Goal(limit), detail=detail))
    mine, other = pairs[Torchreel()], pairs[EmptyCallback()]
    detail = f"{in_words(added(mine), 'ns')} against {in_words(added(other), 'ns')}"
    results.append(Result("ops against an empty callback, ratio", ratio(mine, other), Goal(1.25), "", detail))
    results.append(Result("not recording, after a recording with memory", added(pairs[IdleAllocator()]), unit="ns"))
    results.append(Result("the bare op", Spread.of([pair.bare for pair in mine]), unit="ns"))
    return results
