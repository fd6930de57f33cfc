"""What a thread was doing at each moment, against a walk through its calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.analyze.gpu.traces import Trace
from torchreel.analyze.gpu.model.calls import COLUMNS, calls_of
from torchreel.analyze.gpu.model.timeline import timeline_of


def test_the_innermost_call_is_found(tmp_path: Path) -> None:
    trace = Trace()
    for name, start, end in (
        ("a", 0, 100),
        ("b", 10, 50),
        ("c", 10, 50),
        ("none", 20, 20),
        ("d", 50, 60),
        ("e", 120, 130),
    ):
        trace.call(name, start, end)
    calls = calls_of(trace.write(tmp_path / "x.reel").table("ops", COLUMNS))
    timeline = timeline_of(calls, 0)
    moments = np.array([-1, 0, 9, 10, 49, 50, 59, 60, 99, 100, 119, 120, 130])
    names = [calls.text(row) for row in timeline.at(moments).tolist()]
    assert names == ["", "a", "a", "c", "c", "d", "d", "a", "a", "", "", "e", ""]
    which, begins, ends, rows = timeline.pieces(np.array([-5, 55, 70, 200]), np.array([12, 125, 70, 210]))
    pieces = [(n, b, e, calls.text(r)) for n, b, e, r in zip(*map(list, (which, begins, ends, rows)), strict=True)]
    assert pieces == [
        (0, -5, 0, ""),
        (0, 0, 10, "a"),
        (0, 10, 12, "c"),
        (1, 55, 60, "d"),
        (1, 60, 100, "a"),
        (1, 100, 120, ""),
        (1, 120, 125, "e"),
        (3, 200, 210, ""),
    ]


def test_a_call_that_ends_after_its_caller_leaves_nothing_open(tmp_path: Path) -> None:
    trace = Trace()
    trace.call("op", 0, 50)
    trace.call("hipLaunchKernel", 40, 60)
    calls = calls_of(trace.write(tmp_path / "x.reel").table("ops", COLUMNS))
    assert timeline_of(calls, 0).at(np.array([45, 60, 70])).tolist() == [1, -1, -1]
