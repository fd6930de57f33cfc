"""Where the time of devices went, counted by hand; tests/analyze/gpu/test_real_traces.py has real traces."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.gpu.by_hand import kernel, reel_of
from torchreel.analyze.gpu.activities import activities
from torchreel.analyze.gpu.devices import devices


def test_the_parts_of_a_device_add_up(tmp_path: Path) -> None:
    """
    compute        0-10        20-30
    communication      5-15    20-25
    copy, set            12-18              40-44
    """
    reel = reel_of(
        tmp_path / "run.reel",
        {
            "processes": [{"rank": 3}],
            "devices": [{"device": "cuda:0", "model": "NVIDIA A100"}],
            "kernels": [
                kernel(0, 10, occupancy=50.0, blocks_per_sm=0.5),
                kernel(20, 30, occupancy=20.0, blocks_per_sm=3.0),
                kernel(5, 15, kind="communication", stream=9, blocks_per_sm=0.25),
                kernel(20, 25, kind="communication", stream=9, blocks_per_sm=0.25),
                kernel(12, 18, kind="copy", stream=11),
                kernel(40, 44, kind="set"),
            ],
        },
    )
    assert devices(reel, activities(reel)).to_pylist() == [
        {
            "process": 0,
            "rank": 3,
            "device": "cuda:0",
            "model": "NVIDIA A100",
            "span_ns": 44,
            "busy_ns": 18 + 10 + 4,
            "idle_ns": 2 + 10,
            "compute_ns": 20,
            "communication_ns": 15,
            "memory_ns": 10,
            "exposed_communication_ns": 5,  # 10-15
            "exposed_memory_ns": 3 + 4,  # 15-18, 40-44
            "overlap_ns": 5 + 5,
            "occupancy_percent": 35.0,
            # 0-5 half, 5-10 three quarters, 10-15 a quarter, 20-30 all of it
            "sm_efficiency_percent": 100 * (2.5 + 3.75 + 1.25 + 10) / 44,
        }
    ]


def test_devices_and_processes_are_apart(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path / "run.reel",
        {"kernels": [kernel(0, 10), kernel(100, 110, device="cuda:1"), kernel(120, 130, device="cuda:1")]},
        {"kernels": [kernel(5, 15, device="cuda:1"), kernel(16, 20, device="cuda:1", kind="other")]},
    )
    found = devices(reel, activities(reel)).to_pylist()
    assert [(row["process"], row["rank"], row["device"], row["model"]) for row in found] == [
        (0, None, "cuda:0", None),
        (0, None, "cuda:1", None),
        (1, None, "cuda:1", None),
    ]
    assert [(row["span_ns"], row["compute_ns"], row["idle_ns"]) for row in found] == [
        (10, 10, 0),
        (30, 20, 10),
        (15, 14, 1),
    ]
    assert {row["occupancy_percent"] for row in found} == {row["sm_efficiency_percent"] for row in found} == {None}
