"""How long does it take to capture a full training step, against ExecutionTraceObserver and make_fx?"""

from __future__ import annotations

import functools
import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.profiler import ExecutionTraceObserver

import torchreel
from benchmarks.result import Goal, Result, Spread, number
from benchmarks.rounds import Pair, added, in_words, interleave, ratio
from benchmarks.training_steps import TrainingStep, encoder

WARM_UP = 2
# A window is one step: make_fx takes seconds for it, and users capture one.
WINDOWS = 4
ROUNDS = 8

PLAIN = "plain"
TRACED = "torchreel"
PUT_TOGETHER = "torchreel, the program put together too"
OBSERVED = "ExecutionTraceObserver"
FX = "make_fx"

GOALS = {OBSERVED: Goal(1 / 8), FX: Goal(1 / 100)}


def _traced(step: TrainingStep) -> None:
    with torchreel.tracing():
        step()


def _put_together(step: TrainingStep) -> None:
    """A tape becomes plain data when somebody asks for it, which a traced step need not wait for."""
    with torchreel.tracing() as tape:
        step()
    assert tape.program.ops


def _observed(file: str, step: TrainingStep) -> None:
    """It writes its file while the program runs."""
    observer = ExecutionTraceObserver().register_callback(file)
    observer.start()
    step()
    observer.stop()
    observer.unregister_callback()


def _fx(step: TrainingStep) -> None:
    """With real tensors, so that the step is taken as in all others."""
    make_fx(lambda: step(), tracing_mode="real")()  # a method's `self` would count as an argument


def _window(step: TrainingStep, calls: dict[str, Callable[[TrainingStep], None]], way: str) -> float:
    """CPU nanoseconds of one step and its capture, of the thread that does both."""
    step.rewind()
    gc.collect()
    for _ in range(WARM_UP):
        step()
    start = time.thread_time_ns()
    calls[way](step)
    return time.thread_time_ns() - start


def measure(quick: bool) -> list[Result]:
    torch.set_num_threads(1)
    step = encoder(fused=True)
    rounds, windows = (1, 2) if quick else (ROUNDS, WINDOWS)
    with tempfile.TemporaryDirectory() as directory:
        calls: dict[str, Callable[[TrainingStep], None]] = {
            PLAIN: lambda step: step(),
            TRACED: _traced,
            PUT_TOGETHER: _put_together,
            OBSERVED: functools.partial(_observed, str(Path(directory, "step.json"))),
            FX: _fx,
        }
        for call in calls.values():  # what each of them does once in a process
            call(step)
        gc.collect()
        gc.freeze()
        gc.disable()
        window = functools.partial(_window, step, calls)
        others = [way for way in calls if way != PLAIN]
        pairs = interleave(window, PLAIN, [others], lambda _: 0, rounds=rounds, windows=windows)
    return _results(pairs)


def _results(pairs: dict[str, list[Pair]]) -> list[Result]:
    results = []
    for ours in (TRACED, PUT_TOGETHER):
        for theirs in (OBSERVED, FX):
            goal = GOALS[theirs] if ours == TRACED else None
            times = _taken(pairs[ours]), _taken(pairs[theirs])
            results.append(_whole(f"{ours} against {theirs}", *times, goal))
            results.append(_added(f"{ours} against {theirs}", pairs[ours], pairs[theirs], goal))
    for theirs in (OBSERVED, FX):  # a capture that took no time at all would be here
        plain = [pair.bare for pair in pairs[theirs]]
        results.append(_whole(f"no capture against {theirs}", plain, _taken(pairs[theirs]), None))
    return results


def _taken(pairs: list[Pair]) -> list[float]:
    return [pair.bare + pair.added for pair in pairs]


def _whole(what: str, mine: list[float], other: list[float], goal: Goal | None) -> Result:
    """The step with all that its capture takes."""
    ratios = Spread.of([one / another for one, another in zip(mine, other, strict=True)])
    return Result(f"{what}: the whole step, ratio", ratios, goal, detail=_against(Spread.of(mine), Spread.of(other)))


def _added(what: str, mine: list[Pair], other: list[Pair], goal: Goal | None) -> Result:
    """What the capture adds to the step."""
    return Result(
        f"{what}: what capture adds, ratio", ratio(mine, other), goal, detail=_against(added(mine), added(other))
    )


def _against(mine: Spread, other: Spread) -> str:
    times = f"{in_words(mine, 'ms', 1e-6)} against {in_words(other, 'ms', 1e-6)}"
    return f"{times}: 1/{number(other.median / mine.median)}"
