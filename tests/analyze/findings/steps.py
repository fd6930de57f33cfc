"""Runs made by hand: the same step several times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

import torchreel
from tests.synthetic import START, Call, Process
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process


def in_step(item: Call, step: int) -> Call:
    return replace(item, step=step, children=tuple(in_step(child, step) for child in item.children))


def run_of(path: Path, make: Callable[[int], list[Call]], steps: int = 5) -> torchreel.Reel:
    """A reel whose steps 0 to `steps` - 1 are what `make` gives for them."""
    made = [[in_step(item, number) for item in make(number)] for number in range(steps)]
    process = Process({"MainThread": [item for step in made for item in step]})
    rows, moment = [], START
    for number, step in enumerate(made):
        end = moment + sum(item.dur_ns for item in step)
        rows.append({"step": number, "start_ns": moment, "end_ns": end})
        moment = end
    write_process(path / process.name, {**process.tables(), "steps": pa.Table.from_pylist(rows)})
    write_meta(path, {"root": process.name})
    return torchreel.load(path)
