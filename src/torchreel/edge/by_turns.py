"""Two formats of one model: their times by turns, and how far apart their outputs are."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchreel.edge.example_inputs import check_count, declared_inputs, given_inputs
from torchreel.edge.formats.adapter import Deployed
from torchreel.edge.measure import MeasureOptions, Model, load_quietly, quiet, with_threads
from torchreel.errors import EdgeError


@dataclass(frozen=True)
class Plain:
    """Times of a run without a profiler."""

    ns: int  # the median and the quartiles
    low_ns: int
    high_ns: int


def load_both(paths: Sequence[Path], words: Sequence[str], threads: int | None, check: bool = True) -> list[Model]:
    """Load two files for the same inputs: of these words, or such as the one or the other declares."""
    given = given_inputs(words)
    loaded = [(path, load_quietly(path, threads, check)) for path in paths]
    if not words:
        given = _declared_by_one(loaded)
    for path, deployed in loaded:
        check_count(path, given, deployed.inputs)
    return [Model(path, deployed, given) for path, deployed in loaded]


def _declared_by_one(loaded: Sequence[tuple[Path, Deployed]]) -> list[torch.Tensor]:
    said: list[EdgeError] = []
    for path, deployed in loaded:
        try:
            return declared_inputs(path, deployed.inputs)
        except EdgeError as error:
            said.append(error)
    raise said[0]


def by_turns(models: Sequence[Model], options: MeasureOptions) -> list[Plain]:
    """Run warm models without a profiler, one after the other again and again: a busy machine is busy for all."""
    times: list[list[int]] = [[] for _ in models]
    with with_threads(options.threads), quiet(), torch.inference_mode():
        for _ in range(options.repeat):
            for model, taken in zip(models, times, strict=True):
                began = time.perf_counter_ns()
                model.run()
                taken.append(time.perf_counter_ns() - began)
    return [_plain(taken) for taken in times]


def largest_difference(left: Model, right: Model, options: MeasureOptions) -> float | str:
    """How far the outputs of the two are apart, on the same inputs; or what makes them incomparable."""
    with with_threads(options.threads), quiet(), torch.inference_mode():
        ours, theirs = ([*_tensors(model.run())] for model in (left, right))
    if len(ours) != len(theirs):
        return f"{left.path} gives {len(ours)} tensors and {right.path} {len(theirs)}"
    apart = 0.0
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True), start=1):
        if mine.shape != other.shape:
            return f"output {number} has the sizes {_sizes(mine)} and {_sizes(other)}"
        if mine.numel():
            apart = max(apart, _distance(mine, other))
    return apart


def _distance(mine: torch.Tensor, other: torch.Tensor) -> float:
    wide = torch.complex128 if mine.is_complex() or other.is_complex() else torch.float64
    gap = (mine.to(wide) - other.to(wide)).abs()
    gap[mine.isnan() & other.isnan()] = 0
    return float(gap.max())


def _plain(times: list[int]) -> Plain:
    if len(times) == 1:
        return Plain(times[0], times[0], times[0])
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return Plain(round(median), round(low), round(high))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """All tensors of what a model gave, whatever holds them."""
    if isinstance(value, torch.Tensor):
        yield value.detach().cpu()
    elif isinstance(value, np.ndarray):
        yield torch.from_numpy(value)
    elif isinstance(value, Mapping):
        for key in value:
            yield from _tensors(value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _sizes(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "of a number"
