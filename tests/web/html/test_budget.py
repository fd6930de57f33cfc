"""What is kept of a reel that does not fit."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import torchreel
from tests.synthetic import Process, call, write_reel
from torchreel.web.html.budget import Kept, Room, fitting, fitting_curve, important_steps
from torchreel.web.html.calls import Calls
from torchreel.web.memory_curve import Curve
from torchreel.web.tiles import WIDTH
from torchreel.web.viewed_reel import ViewedReel

MANY = 1 << 40


@pytest.fixture(scope="module")
def calls(trained: Path) -> Calls:
    return Calls.read(ViewedReel(torchreel.load(trained)))


def test_all_calls_if_they_fit(calls: Calls) -> None:
    kept = fitting(calls, Room(MANY, MANY))
    assert kept.is_whole and kept.count == len(calls) > 100
    assert fitting(calls, Room(kept.size, len(calls))).is_whole
    assert not fitting(calls, Room(kept.size - 1, len(calls))).is_whole
    assert not fitting(calls, Room(kept.size, len(calls) - 1)).is_whole


def test_it_fits_however_small_the_room(calls: Calls) -> None:
    whole = fitting(calls, Room(MANY, MANY)).size
    for part in (0.9, 0.6, 0.3, 0.1, 0.02, 0.0):
        room = Room(int(whole * part), MANY)
        kept = fitting(calls, room)
        assert room.holds(kept) or kept.count == 0
        for most in (0, 1, 7, 100):
            assert fitting(calls, Room(MANY, most)).count <= most


def test_more_room_is_used(calls: Calls) -> None:
    """Not all of it, since the size is known only when it is written, but most of it."""
    whole = fitting(calls, Room(MANY, MANY)).size
    kept = fitting(calls, Room(int(whole * 0.8), MANY))
    assert kept.size > 0.4 * whole
    counts = [fitting(calls, Room(int(whole * part), MANY)).count for part in (0.2, 0.5, 0.9)]
    assert counts[0] < counts[-1] < len(calls)


def test_steps_stay_whole_and_elsewhere_the_longest_calls(calls: Calls) -> None:
    whole = fitting(calls, Room(MANY, MANY)).size
    kept = fitting(calls, Room(int(whole * 0.85), MANY))
    assert kept.steps
    inside = np.zeros(len(calls), bool)
    for step in kept.steps:
        inside |= (calls.starts >= step.begin) & (calls.starts < step.end)
    assert kept.chosen[inside].all()
    outside = ~kept.chosen
    assert outside.any() and calls.durations[outside].max() < kept.threshold_ns


def test_what_is_around_a_call_is_in_too(calls: Calls) -> None:
    whole = fitting(calls, Room(MANY, MANY)).size
    kept = fitting(calls, Room(int(whole * 0.5), MANY))
    parents, has_parent = calls.column("parent")
    there = set(zip(calls.processes[kept.chosen].tolist(), calls.ids[kept.chosen].tolist(), strict=True))
    for process, parent in zip(
        calls.processes[kept.chosen & has_parent].tolist(), parents[kept.chosen & has_parent].tolist(), strict=True
    ):
        assert (process, parent) in there


def test_the_median_the_slowest_and_the_first_step(calls: Calls) -> None:
    viewed = calls.viewed
    steps = important_steps(viewed)
    table = [row for row in viewed.reel.table("steps").to_pylist() if row["process"] == 0]
    assert steps[-1].number == min(table, key=lambda row: row["start_ns"])["step"] or len(steps) < 3
    assert 1 <= len(steps) <= 3 and len(set(steps)) == len(steps)


def test_calls_of_one_length_that_do_not_fit_together(tmp_path: Path) -> None:
    """They are all in or all out: none is in, though some would fit."""
    path = write_reel(tmp_path / "run.reel", Process({"main": [call(f"op {n % 7}", 1000) for n in range(500)]}))
    calls = Calls.read(ViewedReel(torchreel.load(path)))
    kept = fitting(calls, Room(MANY, 100))
    assert kept.count == 0 and kept.threshold_ns == 1001


def test_a_reel_without_calls(tmp_path: Path) -> None:
    calls = Calls.read(ViewedReel(torchreel.load(write_reel(tmp_path / "run.reel", Process({})))))
    kept = fitting(calls, Room(0, 0))
    assert isinstance(kept, Kept) and kept.count == 0


def test_a_coarser_curve_has_the_extremes_of_the_fine_one() -> None:
    generator = np.random.default_rng(5)
    times = np.sort(generator.integers(0, 1 << 22, 20_000))
    curve = Curve(times, generator.integers(0, 1 << 30, len(times)))
    assert fitting_curve(None, 1 << 22, 1000) is None
    exact = fitting_curve(curve, 1 << 22, 1 << 30)
    assert exact is not None and exact.step_ns == 1 and exact.curve is curve
    coarse = fitting_curve(curve, 1 << 22, 60_000)
    assert coarse is not None and len(coarse.bytes) <= 15_000 and coarse.step_ns > 1
    for level in itertools.chain(range(coarse.step_ns.bit_length() - 1, 23)):
        for fine, rough in zip(*(each.extremes(0, 1 << level, WIDTH) for each in (curve, coarse.curve)), strict=True):
            assert (fine == rough).all(), level
