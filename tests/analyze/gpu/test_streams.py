"""Why streams waited, counted by hand."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.gpu.by_hand import call, kernel, reel_of
from torchreel.analyze.gpu.activities import activities
from torchreel.analyze.gpu.queue import queue
from torchreel.analyze.gpu.streams import streams


def test_a_gap_is_the_hosts_or_short_or_other(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path / "run.reel",
        {
            "ops": [
                call(0, 2),
                call(2, 4),
                call(41, 43),
                call(43, 45),
                call(45, 47),
                call(200, 210, "cudaGraphLaunch"),
            ],
            "kernels": [
                kernel(5, 40, launch=0),
                kernel(10, 20, launch=1),  # ends before the one that began before it
                kernel(50, 60, launch=2),  # 10 after 40; launched at 41: the host
                kernel(65, 70, launch=3),  # 5 after 60: back to back
                kernel(100, 110, launch=4),  # 30 after 70: other
                kernel(115, 120),  # 5 after 110, without a launch: back to back
                kernel(220, 230, launch=5, stream=9),
                kernel(231, 240, launch=5, stream=9),  # of one graph: both were launched before
                kernel(0, 1, stream=None),
            ],
        },
    )
    found = activities(reel)
    names = ("stream", "activities", "busy_ns", "idle_ns", "idle_host_ns", "idle_back_to_back_ns", "idle_other_ns")
    assert [tuple(row[name] for name in names) for row in streams(found, gap_ns=30).to_pylist()] == [
        (None, 1, 1, 0, 0, 0, 0),
        (7, 6, 35 + 10 + 5 + 10 + 5, 50, 10, 10, 30),
        (9, 2, 19, 1, 0, 1, 0),
    ]
    assert streams(found, gap_ns=31)["idle_other_ns"].to_pylist() == [0, 0, 0]
    assert streams(found)["queue_max"].to_pylist() == [0, 3, 0]


def test_a_launch_at_the_time_of_a_beginning_is_counted_first(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path / "run.reel",
        {
            "ops": [call(0, 1), call(10, 11), call(20, 21)],
            "kernels": [kernel(10, 20, launch=0), kernel(30, 40, launch=1), kernel(40, 41, launch=2)],
        },
    )
    # 1 from 0, 2 and 1 at 10, 2 from 20, 1 from 30, 0 at 40
    assert queue(activities(reel), limit=2).to_pylist() == [
        {
            "process": 0,
            "device": "cuda:0",
            "stream": 7,
            "launched": 3,
            "max": 2,
            "mean": (10 * 1 + 10 * 1 + 10 * 2 + 10 * 1) / 40,
            "full_ns": 10,
        }
    ]
