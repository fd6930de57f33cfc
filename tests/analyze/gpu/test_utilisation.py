"""How busy and how full a device was over time, counted by hand; the plug-in's own test is in test_real_traces.py."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.gpu.by_hand import START, kernel, reel_of
from torchreel.analyze.gpu.activities import activities
from torchreel.analyze.gpu.utilisation import utilisation


def test_pieces_of_a_power_of_ten(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path / "run.reel",
        {
            "processes": [{"start_ns": START, "end_ns": START + 3_500}],
            "kernels": [
                kernel(500, 1_500, blocks_per_sm=0.5),
                kernel(1_250, 1_750, blocks_per_sm=0.75, stream=9),
                kernel(2_000, 3_000, kind="copy"),
                kernel(3_250, 3_500),
            ],
        },
    )
    rows = utilisation(reel, activities(reel)).to_pylist()
    assert [(row["start_ns"] - START, row["end_ns"] - START) for row in rows] == [(0, 1000), (1000, 2000), (2000, 3500)]
    assert [row["busy_percent"] for row in rows] == [50.0, 75.0, 100 * 250 / 1500]
    # 500-1000 half; 1000-1250 half, 1250-1500 all (1.25 is 1 at most), 1500-1750 three quarters
    assert [row["sm_efficiency_percent"] for row in rows] == [25.0, 12.5 + 25.0 + 18.75, 0.0]


def test_there_are_at_most_a_hundred(tmp_path: Path) -> None:
    reel = reel_of(tmp_path / "run.reel", {"kernels": [kernel(0, 10), kernel(123_456_000, 123_456_789, step=1)]})
    rows = utilisation(reel, activities(reel)).to_pylist()
    assert len(rows) == 12 and rows[0]["end_ns"] - rows[0]["start_ns"] == 10_000_000
    assert {row["sm_efficiency_percent"] for row in rows} == {None}
    of_step = utilisation(reel, activities(reel).within(step=1), whole=False).to_pylist()
    assert [(row["start_ns"] - START, row["busy_percent"]) for row in of_step] == [(123_456_000, 100.0)]
