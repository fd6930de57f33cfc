"""Which lines launched which kernels."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.gpu.by_hand import call, kernel, reel_of
from torchreel.analyze.source.line_kernels import line_kernels


def test_kernels_are_of_the_innermost_line_of_their_call(tmp_path: Path) -> None:
    frames = [
        {"id": 0, "file": "/home/user/train.py", "line": 3, "function": "main"},
        {"id": 1, "file": "/home/user/model.py", "line": 8, "function": "forward"},
    ]
    reel = reel_of(
        tmp_path / "run.reel",
        {
            "ops": [call(0, 10, id=0, stack=0), call(20, 30, id=1, stack=1), call(40, 50, id=2)],
            "frames": frames,
            "stacks": [{"id": 0, "frames": [1, 0]}, {"id": 1, "frames": [0]}],
            "kernels": [
                kernel(5, 15, op=0, name="gemm"),
                kernel(15, 45, op=0, name="gemm"),
                kernel(45, 46, op=0, name="add"),
                kernel(50, 57, op=1, name="add", device="cuda:1"),
                kernel(60, 70, op=2, name="without a stack"),
                kernel(70, 80, name="without a call"),
            ],
        },
    )
    rows = [tuple(row.values()) for row in line_kernels(reel).to_pylist()]
    assert rows == [
        ("/home/user/model.py", 8, "cuda:0", "gemm", 2, 40),
        ("/home/user/model.py", 8, "cuda:0", "add", 1, 1),
        ("/home/user/train.py", 3, "cuda:1", "add", 1, 7),
    ]
