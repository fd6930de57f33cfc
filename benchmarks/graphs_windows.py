"""Windows of calls, interleaved: in each turn every variant has one, in an order that changes all the time.

Ratios here are as small as 1/50, so that what two neighbours differ by says little: windows are of the same length in
time, and a round's value is the median of its windows.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Mapping

import torch

from benchmarks.graphs_variants import Ready
from benchmarks.result import Spread

WINDOW_NS = 3_000_000
WARM_UP = 2


def window(one: Ready, calls: int) -> float:
    """CPU nanoseconds of a call, of the thread that makes it."""
    one.program.rewind()
    call, inputs = one.call, one.inputs
    with torch.inference_mode(one.program.inference):
        for index in range(WARM_UP + calls):
            if index == WARM_UP:
                start = time.thread_time_ns()
            call(*inputs)
        return (time.thread_time_ns() - start) / calls


def calls_in(one: Ready) -> int:
    """How many calls fill a window; found by trying, which warms it up as well."""
    calls = 1
    while (taken := window(one, calls) * calls) < WINDOW_NS / 4:
        calls *= 4
    return max(1, round(calls * WINDOW_NS / taken))


def interleaved(variants: Mapping[str, Ready], *, rounds: int, windows: int) -> dict[str, list[float]]:
    """For each variant, one value per round."""
    order = random.Random(0)
    calls = {name: calls_in(one) for name, one in variants.items()}
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return _rounds(variants, calls, order, rounds, windows)
    finally:
        gc.enable()
        gc.unfreeze()


def _rounds(
    variants: Mapping[str, Ready], calls: dict[str, int], order: random.Random, rounds: int, windows: int
) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        taken: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(windows):
            for name in order.sample(list(variants), len(variants)):
                taken[name].append(window(variants[name], calls[name]))
        for name, several in taken.items():
            values[name].append(statistics.median(several))
    return values


def ratio(mine: list[float], other: list[float]) -> Spread:
    """Round by round."""
    return Spread.of([one / another for one, another in zip(mine, other, strict=True)])
