"""What launching costs, counted by hand."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.gpu.by_hand import call, kernel, reel_of
from torchreel.analyze.gpu.activities import activities
from torchreel.analyze.gpu.graphs import graphs
from torchreel.analyze.gpu.launches import launches


def test_pairs_of_a_call_and_its_kernel(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path / "run.reel",
        {
            "ops": [
                call(0, 4),
                call(10, 30, "cuLaunchKernelEx", "driver"),
                call(30, 33, "hipLaunchKernel"),
                call(40, 41, "cudaGraphLaunch"),
                call(50, 51),
            ],
            "kernels": [
                kernel(6, 16, launch=0),  # delay 2
                kernel(20, 30, launch=1),  # before its call ended: delay 0, and shorter than the call
                kernel(40, 50, launch=2),  # delay 7
                kernel(28, 38, launch=2, stream=9),  # before its call: a fault of the clocks
                kernel(60, 61, launch=3),
                kernel(61, 62, launch=3),
                kernel(62, 63, launch=4, graph=5),
                kernel(70, 71),
                kernel(80, 81, launch=99),  # a call that is not there
            ],
        },
    )
    assert launches(activities(reel)).to_pylist() == [
        {
            "process": 0,
            "pairs": 4,
            "call_ns": 4 + 20 + 3 + 3,
            "kernel_ns": 40,
            "delay_ns": 9,
            "delay_median_ns": 0,  # the lower of 0 and 2
            "shorter_than_call": 1,
            "before_call": 1,
        }
    ]
    assert graphs(activities(reel)).to_pylist() == [{"process": 0, "launches": 2, "activities": 3}]
