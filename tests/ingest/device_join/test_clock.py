"""Clocks are aligned by the ranges that both halves saw, within the error that is stated."""

from __future__ import annotations

import random

import numpy as np

from tests.ingest.device_join.halves import mark, tables
from torchreel.ingest.device_join.clock import Alignment, align

SECOND = 1_000_000_000


def halves(offset: int, drift: float, seed: int, length: int = 10 * SECOND):
    """Bursts of marks at both ends of a run; the host's clock is exact, the device's is off by offset and drift."""
    chance = random.Random(seed)

    def theirs(time: int) -> int:
        return time + offset + round(drift * time)

    host, device = [], []
    for number in range(16):
        start = (0 if number < 8 else length) + number * 5_000 + chance.randrange(500)
        # Both clocks are read when it begins, one after the other, and when it ends, in the same order.
        first, second = sorted(chance.sample(range(1_000), 2))
        end = start + 1_000
        one, two = (start + first, end + first), (start + second, end + second)
        own, other = (one, two) if number % 2 else (two, one)
        host.append(mark(number, number, *own))
        device.append(mark(number, number, theirs(other[0]), theirs(other[1])))
    return tables(ops=host)["ops"], tables(ops=device)["ops"], theirs


def test_any_offset_and_drift_is_found_within_the_stated_error():
    for seed in range(200):
        chance = random.Random(-seed)
        host, device, theirs = halves(chance.randrange(-5_000_000, 5_000_000), chance.uniform(-5e-5, 5e-5), seed)
        found = align(host, device)
        assert (found.marks, found.disagreeing) == (16, 0)
        assert found.error_ns is not None and found.error_ns <= 1_000
        times = np.arange(0, 10 * SECOND, SECOND // 7)
        moved = found(np.array([theirs(time) for time in times.tolist()], dtype=np.int64))
        assert np.abs(moved - times).max() <= found.error_ns + 1


def test_marks_that_are_close_together_give_no_drift():
    host, device, _ = halves(1_000_000, 0.0, 1, length=10_000)
    found = align(host, device)
    assert found.drift == 0.0
    assert abs(found.offset_ns + 1_000_000) <= found.error_ns


def test_without_a_mark_that_both_have_times_stay_and_no_error_is_claimed():
    found = align(tables(ops=[mark(0, 1, 0, 10)])["ops"], tables(ops=[mark(0, 2, 0, 10)])["ops"])
    assert found == Alignment()
    assert found(np.array([5, 2**60])).tolist() == [5, 2**60]


def test_a_name_that_is_there_twice_says_nothing():
    twice = tables(ops=[mark(0, 1, 0, 10), mark(1, 1, 50, 60)])["ops"]
    assert align(twice, tables(ops=[mark(0, 1, 0, 10)])["ops"]) == Alignment()


def test_a_mark_that_contradicts_the_others_is_counted():
    host, device, theirs = halves(0, 0.0, 3)
    rows = device.to_pylist()
    rows.append(mark(99, 99, theirs(5 * SECOND), theirs(5 * SECOND) + 100))
    ours = [*host.to_pylist(), mark(99, 99, 5 * SECOND + 1_000_000, 5 * SECOND + 1_000_100)]
    assert align(tables(ops=ours)["ops"], tables(ops=rows)["ops"]).disagreeing == 1
