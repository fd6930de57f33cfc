"""The time of devices by ranges, and the sequences of kernels of ops, counted by hand."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.gpu.by_hand import Rows, call, kernel, reel_of
from torchreel.analyze.gpu.activities import activities
from torchreel.analyze.gpu.ranges import ranges
from torchreel.analyze.gpu.sequences import sequences

# outer { linear { launch, copy_ { launch } }, inner { relu { launch }, linear { linear { launch, launch } } } }, launch
TREE: Rows = {
    "ops": [
        call(0, 100, "outer", "range"),
        call(0, 30, "linear", "op", parent=0),
        call(5, 8, parent=1),
        call(10, 20, "copy_", "op", parent=1),
        call(12, 13, parent=3),
        call(40, 90, "inner", "range", parent=0),
        call(42, 50, "relu", "op", parent=5),
        call(45, 46, parent=6),
        call(50, 80, "linear", "op", parent=5),
        call(51, 79, "linear", "op", parent=8),
        call(60, 61, parent=9),
        call(62, 63, parent=9),
        call(110, 111),
    ],
    "kernels": [
        kernel(200, 210, name="gemm", launch=2, op=1),
        kernel(210, 215, name="copy", launch=4, op=3),
        kernel(220, 221, name="relu", launch=7, op=6),
        kernel(208, 230, name="gemm", launch=10, op=9, stream=9),
        kernel(230, 240, name="copy", launch=11, op=9),
        kernel(300, 301, name="alone", launch=12),
        kernel(310, 313, name="lost", op=6),  # its launch is not there
        kernel(320, 324, name="none"),
    ],
}


def test_a_kernel_belongs_to_the_innermost_range_around_its_launch(tmp_path: Path) -> None:
    reel = reel_of(tmp_path / "run.reel", TREE)
    assert [tuple(row.values()) for row in ranges(reel, activities(reel)).to_pylist()] == [
        (0, "inner", 1, 4, 1 + 22 + 10 + 3, 22 + 10 + 3),
        (0, "outer", 1, 2, 15, 15),
        (0, None, 0, 2, 5, 5),
    ]


def test_the_sequences_of_an_op(tmp_path: Path) -> None:
    reel = reel_of(tmp_path / "run.reel", TREE, TREE)
    assert [tuple(row.values()) for row in sequences(reel, activities(reel)).to_pylist()] == [
        ("linear", ["gemm", "copy"], 4, 2 * (15 + 32), 2 * (30 + 30)),
        ("copy_", ["copy"], 2, 10, 20),
        ("relu", ["relu", "lost"], 2, 8, 16),
    ]


def test_nothing_was_launched(tmp_path: Path) -> None:
    reel = reel_of(tmp_path / "run.reel", {"kernels": [kernel(0, 1)]})
    assert sequences(reel, activities(reel)).num_rows == 0
    assert ranges(reel, activities(reel))["name"].to_pylist() == [None]
