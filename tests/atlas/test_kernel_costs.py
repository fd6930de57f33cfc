"""What a run spent in kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import torchreel
from tests.atlas.test_operator_costs import Definition, Differentiated, costs, random_calls
from tests.synthetic import Process, call, write_reel
from torchreel.atlas.kernel_costs import kernel_costs
from torchreel.atlas.model import Costs


def test_kernels_that_call_each_other(tmp_path: Path) -> None:
    product = call("aten::mm", 30, call("aten::resolve_conj", 4), bytes=8, flops=24)
    calls = [
        call("aten::matmul", 2, product),
        call("MmBackward0", 1, call("aten::mm", 50), kind="backward"),
        call("aten::add", 3, overload="Tensor"),
        call("aten::add", 1_000, overload="out"),
    ]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    kernels = {
        ("aten::matmul", ""): (1, 10),
        ("aten::mm", ""): (1, 20),
        ("aten::resolve_conj", ""): (2, 30),
        ("aten::add", "Tensor"): (2, 40),
        ("aten::relu", ""): (3, 50),
    }
    places, files = kernel_costs(reel, kernels)
    assert places == {
        (1, 10): costs(1, 2, 0, 36),
        (1, 20): costs(2, 30, 50, 84, 8, 24),
        (2, 30): costs(1, 4, 0, 4),
        (2, 40): costs(1, 3, 0, 3),
        (3, 50): Costs(),
    }
    # mm ran in matmul, which is of the same file: its time is in that of matmul.
    assert files == {1: costs(3, 32, 50, 86, 8, 24), 2: costs(2, 7, 0, 7), 3: Costs()}


@pytest.mark.parametrize("seed", range(5))
def test_against_the_definition_call_by_call(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    process = Differentiated({f"thread {n}": random_calls(random, 4) for n in range(2)})
    reel = torchreel.load(write_reel(tmp_path / "run.reel", process))
    kernels = {
        (f"aten::op{n}", overload): (int(random.integers(2)), int(random.integers(3)))
        for n in range(3)
        for overload in ("", "out")
    }
    places, files = kernel_costs(reel, kernels)
    truth = Definition(reel)

    def place_of(row: dict[str, object]) -> object:
        return kernels.get((row["name"], row["overload"]))

    def file_of(row: dict[str, object]) -> object:
        place = kernels.get((row["name"], row["overload"]))
        return place[0] if place is not None else None

    assert {place: costs for place, costs in places.items() if costs.calls} == truth.sum(place_of, place_of)
    assert {file: costs for file, costs in files.items() if costs.calls} == truth.sum(file_of, file_of)


def test_no_kernels(tmp_path: Path) -> None:
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": [call("aten::mm", 1)]})))
    assert kernel_costs(reel, {}) == ({}, {})
