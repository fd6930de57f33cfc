"""Spikes: narrow ones are found with their lines; slopes, plateaus and what is wide are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyze.memory.traces import Trace, user
from torchreel.analyze.memory.spikes import _slide, level_without_spikes, spikes


def plain(trace: Trace, events: int) -> None:
    """Level ground: events that change nothing."""
    for _ in range(events):
        trace.event("snapshot", 0, 0)


def test_a_spike_on_a_hill(tmp_path: Path) -> None:
    # GIVEN a hill of 100 blocks with a flat top, and on it a block that lives for two events
    trace = Trace()
    for number in range(100):
        trace.alloc(4096 * number, 1000, user(1, "hill"))
    plain(trace, 50)
    trace.alloc(1 << 30, 50_000, user(2, "spike"))
    trace.free(1 << 30, 50_000)
    plain(trace, 50)
    for number in range(100):
        trace.free(4096 * number, 1000)
    memory = trace.memory(tmp_path)
    # THEN it is the only one, as high as it is, and the peak would be that of the hill without it
    (spike,) = spikes(memory)
    assert (spike.bytes, spike.level, spike.at_peak, spike.times) == (50_000, 150_000, True, 1)
    assert spike.lines == (("user/train.py:2 spike", 50_000),)
    assert (spike.moment.event, spike.duration_ns) == (150, 1000)
    assert int(level_without_spikes(memory).max()) == 100_000


def test_spikes_of_one_line_are_counted(tmp_path: Path) -> None:
    trace = Trace()
    trace.alloc(0, 1000, user(1))
    for number in range(30):
        size = 5000 + number
        trace.alloc(4096, size, user(2, "spike"))
        trace.free(4096, size)
        for filler in range(30):
            trace.alloc((2 + filler) * 4096, 1, user(3))
        for filler in range(30):
            trace.free((2 + filler) * 4096, 1)
    found = spikes(trace.memory(tmp_path))
    assert [(spike.times, spike.lines[0][0]) for spike in found] == [(30, "user/train.py:2 spike")]
    assert found[0].bytes in range(5000, 5031)


def test_slopes_and_plateaus_are_none(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(300):
        trace.alloc(4096 * number, 1000, user(1, "hill"))
    plain(trace, 100)
    for number in range(300):
        trace.free(4096 * number, 1000)
    assert spikes(trace.memory(tmp_path)) == []


def test_a_block_that_takes_the_place_of_another(tmp_path: Path) -> None:
    # GIVEN a copy that is made before its original is freed
    trace = Trace()
    for number in range(40):
        trace.alloc(number << 12, 10, user(1))
    trace.alloc(1 << 30, 10_000, user(2, "original"))
    for number in range(40, 80):
        trace.alloc(number << 12, 10, user(1))
    trace.alloc(2 << 30, 10_000, user(3, "copy"))
    trace.free(1 << 30, 10_000)
    for number in range(80, 120):
        trace.alloc(number << 12, 10, user(1))
    (spike,) = spikes(trace.memory(tmp_path))
    assert (spike.bytes, spike.lines) == (10_000, (("user/train.py:3 copy", 10_000),))


@settings(deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=50), st.integers(0, 20))
def test_sliding_windows(values: list[int], half: int) -> None:
    level, width = np.array(values, np.int64), 2 * half + 1
    windows = [[values[min(max(at, 0), len(values) - 1)] for at in range(n - half, n + half + 1)] for n in range(len(values))]  # fmt: skip  # noqa: E501
    assert _slide(level, width, np.minimum).tolist() == [min(window) for window in windows]
    assert _slide(level, width, np.maximum).tolist() == [max(window) for window in windows]
