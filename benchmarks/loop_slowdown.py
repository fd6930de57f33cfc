"""How much slower is a program that is all overhead while it is recorded, against torch.profiler?"""

from __future__ import annotations

import functools
import time

from benchmarks.observers import EmptyCallback, Nothing, Observer, TorchProfiler, Torchreel, settle, writing_time
from benchmarks.policy_loop import PolicyLoop
from benchmarks.result import Goal, Result, Spread
from benchmarks.rounds import Pair, in_words, interleave, ratio, slowdown

WINDOWS = 8
ROUNDS = 20
WRITTEN_STEPS = 8

_ALL = ("record_shapes", "profile_memory", "with_stack")

# Options of torchreel, those of torch.profiler, the goal.
COUNTERPARTS = {
    "ops": ((), (), 0.35),
    "shapes, memory, stacks": (("shapes", "memory", "stacks"), _ALL, 0.30),
    # with_stack records the calls of Python functions, and of built-in ones: this those of Python functions.
    "stacks, Python calls": (("stacks", "python"), ("with_stack",), None),
    # What `torchreel record --all` does; torch.profiler knows no modules outside of TorchScript.
    "shapes, memory, stacks, modules, FLOPs": (("shapes", "memory", "stacks", "modules", "flops"), _ALL, None),
}

# What of torch.profiler's slowdown no recorder that torch calls back can avoid.
FLOORS = {(): EmptyCallback(), _ALL: EmptyCallback(inputs=True)}


def window(loop: PolicyLoop, observer: Observer) -> float:
    """CPU nanoseconds of a step, of the thread that takes it."""
    with observer.watch():
        # The first step warms up. It is called from the same line as the second: another would make new stacks.
        for _ in range(2):
            start = time.thread_time_ns()
            loop.step()
            taken = time.thread_time_ns() - start
    return taken


def writing(loop: PolicyLoop, observer: Observer) -> float:
    """CPU nanoseconds per step, of bringing to disk what was recorded of it."""

    def steps() -> None:
        for _ in range(WRITTEN_STEPS):
            loop.step()

    return writing_time(observer, steps) / WRITTEN_STEPS


def _groups() -> list[list[Observer]]:
    groups: dict[tuple[str, ...], list[Observer]] = {}
    for ours, theirs, _ in COUNTERPARTS.values():
        groups.setdefault(theirs, [TorchProfiler(theirs)]).append(Torchreel(ours))
    for theirs, floor in FLOORS.items():
        groups[theirs].append(floor)
    return list(groups.values())


def measure(quick: bool) -> list[Result]:
    settle()
    loop = PolicyLoop()
    rounds, windows = (2, 2) if quick else (ROUNDS, WINDOWS)
    one_window, writes = functools.partial(window, loop), functools.partial(writing, loop)
    return _results(interleave(one_window, Nothing(), _groups(), writes, rounds=rounds, windows=windows))


def _results(pairs: dict[Observer, list[Pair]]) -> list[Result]:
    results = []
    for what, (ours, theirs, limit) in COUNTERPARTS.items():
        mine, other = pairs[Torchreel(ours)], pairs[TorchProfiler(theirs)]
        detail = f"{in_words(slowdown(mine), '%', 100)} against {in_words(slowdown(other), '%', 100)}"
        goal = None if limit is None else Goal(limit)
        results.append(Result(f"{what}: slowdown, ratio", ratio(mine, other), goal, detail=detail))
    for theirs, floor in FLOORS.items():
        mine, other = pairs[floor], pairs[TorchProfiler(theirs)]
        detail = f"{in_words(slowdown(mine), '%', 100)} against {in_words(slowdown(other), '%', 100)}"
        results.append(Result(f"{floor.name}: slowdown, ratio", ratio(mine, other), detail=detail))
    bare = Spread.of([pair.bare / 1e6 for pair in pairs[Torchreel()]])
    results.append(Result("the bare step", bare, unit="ms"))
    return results
