"""What do Inductor's own kernels, compiled in the background and bound into a graph, give beyond torch's?"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.graphs_variants import COMPILE_OPTIONS, EAGER, GRAPHED, RELAXED, Failed, Ready, ready
from benchmarks.graphs_windows import interleaved, ratio
from benchmarks.graphs_workloads import WORKLOADS, Program, Workload
from benchmarks.result import Result, Spread, number

ROUNDS, WINDOWS = 20, 5
CALLS = 6  # in which kernels are checked, and after which they are used
EXACT, LOWERED = f"{GRAPHED}, inductor=True", f"{RELAXED}, inductor=True"


def _chain(x: Tensor, y: Tensor) -> Tensor:
    return ((x + y) * 0.5 - x).relu() / 3 + y


def _norm(x: Tensor) -> Tensor:
    return nn.functional.gelu(nn.functional.layer_norm(x + 1, (128,))) * 1.5


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x * 0.125 + 1, -1) * 2


def _of(function: Callable[..., Tensor], *sizes: tuple[int, ...]) -> Callable[[], Program]:
    def make() -> Program:
        torch.manual_seed(0)
        return Program(function, tuple(torch.randn(size) for size in sizes))

    return make


PROGRAMS = {
    "six ops on 32x128": _of(_chain, (32, 128), (32, 128)),
    "six ops on 1024x1024": _of(_chain, (1024, 1024), (1024, 1024)),
    "layer norm and gelu of 32x128": _of(_norm, (32, 128)),
    "softmax of 64x257": _of(_softmax, (64, 257)),
    "LSTM of 50 steps": WORKLOADS["LSTM of 50 steps"].make,
}


def measure(quick: bool) -> list[Result]:
    torch.set_num_threads(1)
    return [result for what, make in PROGRAMS.items() for result in _measured(what, make, quick)]


def _measured(what: str, make: Callable[[], Program], quick: bool) -> list[Result]:
    names = [EAGER, GRAPHED, RELAXED, *(["compile"] if quick else COMPILE_OPTIONS)]
    made = {name: ready(name, Workload(make)) for name in names}
    works = {name: one for name, one in made.items() if not isinstance(one, Failed)}
    fates = {}
    for name, options in ((EXACT, {}), (LOWERED, {"exact": False})):
        works[name], fates[name] = _with_inductor(make, options)
    rounds, windows = (2, 2) if quick else (ROUNDS, WINDOWS)
    times = interleaved(works, rounds=rounds, windows=windows)
    best = min((name for name in works if name in COMPILE_OPTIONS), key=lambda name: statistics.median(times[name]))
    all_times = "; ".join(f"{name} {number(statistics.median(times[name]) / 1e3)}" for name in works)
    return [
        *(
            Result(f"{what}: {name} against {other}, ratio", ratio(times[name], times[other]), None, "", fates[name])
            for name, plain in ((EXACT, GRAPHED), (LOWERED, RELAXED))
            for other in (plain, best)
        ),
        Result(f"{what}: eager", _micros(times[EAGER]), None, "µs", all_times),
    ]


def _with_inductor(make: Callable[[], Program], options: dict[str, Any]) -> tuple[Ready, str]:
    import torchreel

    program = make()
    fast = torchreel.graphed(program.function, inductor=True, **options)
    with torch.inference_mode(program.inference):
        for _ in range(3):
            fast(*program.inputs)
        torchreel.graphs.wait(fast)
        for _ in range(CALLS):
            fast(*program.inputs)
    return Ready(program, fast, program.inputs), "; ".join(torchreel.graphs.status(fast).kernels) or "no kernels"


def _micros(values: list[float]) -> Spread:
    return Spread.of([value / 1e3 for value in values])
