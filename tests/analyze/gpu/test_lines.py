"""Time of devices by line of the source."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.gpu.test_modules import checkpointed
from tests.analyze.gpu.traces import Trace
from torchreel.analyze.gpu.lines import NO_STACK, line_device_time


def test_lines_of_forward_and_backward(tmp_path: Path) -> None:
    checkpointed(trace := Trace())
    rows = line_device_time(trace.write(tmp_path / "x.reel")).to_pylist()
    assert [
        (
            row["line"],
            row["function"],
            row["owner"],
            row["kernels"],
            row["self_device_ns"],
            row["forward_ns"],
            row["backward_ns"],
            row["recompute_ns"],
        )
        for row in rows
    ] == [
        (9, "main", "user", 1, 80, 80, 0, 0),
        (3, "main", "user", 3, 70, 10, 40, 20),
        (None, NO_STACK, None, 1, 5, 5, 0, 0),
    ]


def test_calls_of_python_are_a_stack(tmp_path: Path) -> None:
    """The time belongs to the innermost line of the user's own, and is in all lines around it."""
    trace = Trace()
    trace.call("train.py(7): main", 0, 100, "python")
    trace.call("train.py(3): step", 10, 90, "python")
    trace.call("torch/nn/modules/linear.py(125): forward", 20, 80, "python")
    launch = trace.launch(30, 40)
    trace.kernel("gemm", 50, 60, launch)
    rows = line_device_time(trace.write(tmp_path / "x.reel")).to_pylist()
    assert [(row["file"], row["line"], row["owner"], row["self_device_ns"], row["device_ns"]) for row in rows] == [
        ("train.py", 3, "user", 10, 10),
        ("torch/nn/modules/linear.py", 125, "torch", 0, 10),
        ("train.py", 7, "user", 0, 10),
    ]


def test_no_kernels(tmp_path: Path) -> None:
    trace = Trace()
    trace.call("aten::mm", 0, 1, line=1)
    assert line_device_time(trace.write(tmp_path / "x.reel")).num_rows == 0
