"""What does the edge profiler add to a run of a deployed model, against torch.profiler?

The network is the zoo's MobileNet-like one, on one thread: on pictures of 64 x 64, as the zoo has it, and on those of
224 x 224, which such networks are usually given and where the same ops have twelve times the work. The goal is asked of
both. A window is a few runs within a profiler that has begun and has seen some; what it takes to begin and to end, and
to write the trace, lies outside of it.
"""

from __future__ import annotations

import contextlib
import gc
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tests.edge.formats.zoo import ZOO, save_lite
from torch.jit.mobile import _load_for_lite_interpreter
from torch.profiler import ProfilerActivity, profile

import torchreel
from benchmarks.observers import EmptyCallback
from benchmarks.result import Goal, Result, Spread
from benchmarks.rounds import Pair, in_words, interleave, ratio, slowdown

ROUNDS = 10
WINDOWS = 5

LARGE, SMALL, LITE = "nn.Module, 224 x 224", "nn.Module, 64 x 64", "lite interpreter, 64 x 64"

_EVERYTHING = ("report_input_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_ALL_OF_TORCH = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")


@dataclass(frozen=True)
class Nothing:
    @contextlib.contextmanager
    def watch(self, module: Any) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Edge:
    options: tuple[str, ...] = ()

    @contextlib.contextmanager
    def watch(self, module: Any) -> Iterator[None]:
        directory = Path(tempfile.mkdtemp(prefix="torchreel-bench-"))
        try:
            with torchreel.EdgeProfiler(module, directory / "run.reel", **dict.fromkeys(self.options, True)):
                yield
        finally:
            shutil.rmtree(directory)


@dataclass(frozen=True)
class Torch:
    options: tuple[str, ...] = ()

    @contextlib.contextmanager
    def watch(self, module: Any) -> Iterator[None]:
        profiler = profile(activities=[ProfilerActivity.CPU], **dict.fromkeys(self.options, True))
        profiler.start()
        try:
            yield
        finally:
            profiler.stop()
            del profiler  # it is part of a cycle, and holds all that it recorded
            gc.collect()


@dataclass(frozen=True)
class Empty:
    """An empty callback: the least that any observer of torch's calls can cost."""

    @contextlib.contextmanager
    def watch(self, module: Any) -> Iterator[None]:
        with EmptyCallback().watch():
            yield


Watcher = Nothing | Edge | Torch | Empty


@dataclass(frozen=True)
class Deployed:
    """A model as it is shipped, an input, and how many runs are a window after as many to warm up."""

    module: Any
    picture: torch.Tensor
    runs: int

    def window(self, watcher: Watcher) -> float:
        """CPU nanoseconds of a run, all threads of the process together."""
        with torch.inference_mode(), watcher.watch(self.module):
            for run in range(2 * self.runs):
                if run == self.runs:
                    start = time.process_time_ns()
                self.module(self.picture)
            return (time.process_time_ns() - start) / self.runs


def _large() -> Deployed:
    return Deployed(ZOO["mobilenet"].model(), torch.randn(1, 3, 224, 224), 1)


def _small() -> Deployed:
    return Deployed(ZOO["mobilenet"].model(), *ZOO["mobilenet"].inputs(), 5)


def _lite() -> Deployed:
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the lite interpreter is deprecated
        path = save_lite(ZOO["mobilenet"], Path(directory) / "mobilenet.ptl")
        return Deployed(_load_for_lite_interpreter(str(path)), *ZOO["mobilenet"].inputs(), 5)


def measure(quick: bool) -> list[Result]:
    torch.set_num_threads(1)
    rounds, windows = (2, 2) if quick else (ROUNDS, WINDOWS)
    results = []
    for name, make in ((LARGE, _large), (SMALL, _small), (LITE, _lite)):
        pairs = _pairs(make, rounds, windows)
        results += _slowdowns(name, pairs)
        results += _against_torch(name, pairs)
    return results


def _pairs(make: Callable[[], Deployed], rounds: int, windows: int) -> dict[Watcher, list[Pair]]:
    deployed = make()
    groups: list[list[Watcher]] = [[Edge(), Torch(), Empty()], [Edge(_EVERYTHING), Torch(_ALL_OF_TORCH)]]
    for watcher in (Nothing(), *groups[0], *groups[1]):
        deployed.window(watcher)  # what happens once in a process
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return interleave(deployed.window, Nothing(), groups, lambda watcher: 0.0, rounds=rounds, windows=windows)
    finally:
        gc.enable()
        gc.unfreeze()


def _slowdowns(name: str, pairs: dict[Watcher, list[Pair]]) -> list[Result]:
    bare = Spread.of([pair.bare / 1e6 for pair in pairs[Edge()]])
    plain = Spread.of([1 + pair.slowdown for pair in pairs[Edge()]])
    floor = Spread.of([1 + pair.slowdown for pair in pairs[Empty()]])
    everything = Spread.of([1 + pair.slowdown for pair in pairs[Edge(_EVERYTHING)]])
    goal = None if name == LITE else Goal(1.05)
    return [
        Result(f"{name}: a profiled run, in plain ones", plain, goal, detail=f"of {in_words(bare, 'ms')}"),
        Result(f"{name}: with shapes, memory, stacks, FLOPs, modules", everything),
        Result(f"{name}: with an empty callback, which records nothing", floor),
    ]


def _against_torch(name: str, pairs: dict[Watcher, list[Pair]]) -> list[Result]:
    results = []
    for what, ours, theirs in (("", Edge(), Torch()), (", everything", Edge(_EVERYTHING), Torch(_ALL_OF_TORCH))):
        goal = Goal(0.5) if name == LITE and not what else None
        mine, other = pairs[ours], pairs[theirs]
        detail = f"{in_words(slowdown(mine), '%', 100)} against {in_words(slowdown(other), '%', 100)}"
        results.append(
            Result(f"{name}: added, of what torch.profiler adds{what}", ratio(mine, other), goal, detail=detail)
        )
    return results
