"""How much longer does a training step take while it is traced, and how much less when it is replayed?"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable

import torch

import torchreel
from benchmarks.result import Goal, Result, Spread
from benchmarks.rounds import Pair, in_words, interleave
from benchmarks.training_steps import TrainingStep, encoder, mlp

WARM_UP = 3
WINDOWS = 8
ROUNDS = 20

PLAIN, TRACED, REPLAYED = "plain", "traced", "replayed"

# The step, how many of it make a window, the goals of tracing and of replay.
PROGRAMS: dict[str, tuple[Callable[[], TrainingStep], int, Goal, Goal]] = {
    "MLP + SGD": (mlp, 100, Goal(1.15), Goal(0.22)),
    "encoder + Adam": (encoder, 10, Goal(1.12), Goal(0.45)),
}


class Ways:
    """A training step, taken in three ways."""

    def __init__(self, step: TrainingStep) -> None:
        self._step = step
        with torchreel.tracing() as tape:
            step()
        self._calls: dict[str, Callable[[], object]] = {PLAIN: step, TRACED: self._traced, REPLAYED: tape.replay}
        self.ops = len(tape)

    def _traced(self) -> None:
        """From no tape to a tape that is thrown away: to begin and to end it is part of what it costs."""
        with torchreel.tracing():
            self._step()

    def window(self, count: int, way: str) -> float:
        """CPU nanoseconds of a step, of the thread that takes it."""
        call = self._calls[way]
        self._step.rewind()
        gc.collect()
        # One loop, so that all steps have the same stack; the first ones warm up.
        for index in range(WARM_UP + count):
            if index == WARM_UP:
                start = time.thread_time_ns()
            call()
        return (time.thread_time_ns() - start) / count


def measure(quick: bool) -> list[Result]:
    torch.set_num_threads(1)
    ways = {program: Ways(make()) for program, (make, *_) in PROGRAMS.items()}
    gc.collect()
    gc.freeze()
    gc.disable()
    rounds, windows = (2, 2) if quick else (ROUNDS, WINDOWS)
    results = []
    for program, (_, count, tracing, replay) in PROGRAMS.items():
        window = functools.partial(ways[program].window, count)
        pairs = interleave(window, PLAIN, [[TRACED, REPLAYED]], lambda _: 0, rounds=rounds, windows=windows)
        what = f"{program}, {ways[program].ops} ops"
        results.append(_result(f"{what}: traced against plain, ratio", pairs[TRACED], tracing))
        results.append(_result(f"{what}: replayed against plain, ratio", pairs[REPLAYED], replay))
    return results


def _result(what: str, pairs: list[Pair], goal: Goal) -> Result:
    taken = Spread.of([pair.bare + pair.added for pair in pairs])
    plain = Spread.of([pair.bare for pair in pairs])
    detail = f"{in_words(taken, 'µs', 1e-3)} against {in_words(plain, 'µs', 1e-3)}"
    return Result(what, Spread.of([1 + pair.slowdown for pair in pairs]), goal, detail=detail)
