"""Why a device was idle, over traces of a few events whose answer can be read off their times."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchreel
from tests.analyze.gpu.traces import Trace
from torchreel.analyze.gpu.idle import idle_causes

HERE = "me/train.py:{} main"


def causes(reel: torchreel.Reel, **options: int | str) -> list[tuple[str, int, str | None, str | None]]:
    return [
        (row["cause"], row["ns"], row["op"], row["line"])
        for row in idle_causes(reel, **options).to_pylist()  # type: ignore[arg-type]
    ]


def test_launch_bound_time_goes_to_what_ran(tmp_path: Path) -> None:
    """The first kernel ends at 100, the second is launched at 400: its thread ran mm, nothing, then relu."""
    trace = Trace()
    trace.call("aten::mm", 0, 150, line=3)
    first = trace.launch(10, 20)
    trace.call("aten::relu", 300, 500, line=4)
    second = trace.launch(400, 420)
    trace.kernel("gemm", 50, 100, first)
    trace.kernel("relu", 430, 500, second)
    assert causes(trace.write(tmp_path / "x.reel")) == [
        ("launch bound", 150, None, None),  # 150 to 300
        ("launch bound", 130, "aten::relu", HERE.format(4)),  # 300 to 430
        ("launch bound", 50, "aten::mm", HERE.format(3)),  # 100 to 150
    ]


def test_a_wait_that_began_before_the_gap_is_charged(tmp_path: Path) -> None:
    """item() waits from 60 to 130; the device is idle from 120 until 300, as nothing was queued."""
    trace = Trace()
    first = trace.launch(10, 20)
    trace.call("aten::item", 50, 140, line=9)
    trace.launch(60, 130, "cudaStreamSynchronize")
    second = trace.launch(280, 290)
    trace.kernel("a", 30, 120, first)
    trace.kernel("b", 300, 310, second)
    assert causes(trace.write(tmp_path / "x.reel")) == [("sync", 180, "aten::item", HERE.format(9))]


def test_a_wait_that_began_in_the_gap_is_only_host_time(tmp_path: Path) -> None:
    trace = Trace()
    first = trace.launch(10, 20)
    trace.launch(150, 160, "cudaDeviceSynchronize")
    second = trace.launch(200, 210)
    trace.kernel("a", 30, 120, first)
    trace.kernel("b", 220, 230, second)
    assert causes(trace.write(tmp_path / "x.reel")) == [("launch bound", 100, None, None)]


def test_a_copy_that_had_ended_when_its_call_returned_was_waited_for(tmp_path: Path) -> None:
    trace = Trace()
    trace.call("aten::copy_", 0, 150, line=5)
    copy = trace.launch(10, 110, "cudaMemcpyAsync")
    second = trace.launch(200, 210)
    trace.kernel("Memcpy DtoH", 30, 100, copy, kind="copy")
    trace.kernel("b", 220, 230, second)
    assert causes(trace.write(tmp_path / "x.reel")) == [("sync", 120, "aten::copy_", HERE.format(5))]


def test_time_in_a_loader_is_the_loaders_even_after_a_wait(tmp_path: Path) -> None:
    """The gap is 100 to 500: a wait until 110, the loader 200 to 400, the launch at 480."""
    trace = Trace()
    first = trace.launch(10, 20)
    trace.launch(60, 110, "cudaStreamSynchronize", line=1)
    trace.call("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 200, 400, "range", line=2)
    trace.call("aten::stack", 250, 300, line=77)
    second = trace.launch(480, 490)
    trace.kernel("a", 30, 100, first)
    trace.kernel("b", 500, 510, second)
    assert causes(trace.write(tmp_path / "x.reel")) == [
        ("sync", 200, None, HERE.format(1)),
        ("data loader", 150, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", HERE.format(2)),
        ("data loader", 50, "aten::stack", HERE.format(77)),
    ]


def test_a_kernel_that_was_launched_early_waited_in_its_queue(tmp_path: Path) -> None:
    trace = Trace()
    trace.call("aten::mm", 0, 20)
    first, second = trace.launch(1, 2), trace.launch(5, 6)
    trace.kernel("a", 30, 100, first)
    trace.kernel("b", 107, 110, second)
    assert causes(trace.write(tmp_path / "x.reel")) == [("queue", 7, "aten::mm", None)]


def test_a_kernel_behind_a_collective_of_another_stream_waited_for_it(tmp_path: Path) -> None:
    trace = Trace()
    first, second = trace.launch(1, 2), trace.launch(5, 6)
    trace.kernel("ncclDevKernel_AllReduce", 30, 100, first, stream=20, kind="communication")
    trace.kernel("b", 107, 110, second)
    assert causes(trace.write(tmp_path / "x.reel")) == [("communication", 7, None, None)]


def test_a_wait_within_a_collective_is_communication(tmp_path: Path) -> None:
    trace = Trace()
    first = trace.launch(10, 20)
    trace.call("c10d::barrier", 40, 200)
    trace.launch(60, 130, "cudaStreamSynchronize")
    second = trace.launch(280, 290)
    trace.kernel("a", 30, 120, first)
    trace.kernel("b", 300, 310, second)
    assert causes(trace.write(tmp_path / "x.reel")) == [("communication", 180, "c10d::barrier", None)]


def test_a_thread_of_backward_that_rests_is_late_because_of_its_caller(tmp_path: Path) -> None:
    """Thread 1 launches at 300, having begun at 290; until then thread 0 ran aten::sum and 20 ns of nothing."""
    trace = Trace()
    first = trace.launch(10, 20)
    trace.call("aten::sum", 100, 270, line=7)
    trace.call("AddBackward0", 290, 400, "backward", 1, fwd_thread=0)
    second = trace.launch(300, 310, thread=1)
    trace.kernel("a", 30, 100, first)
    trace.kernel("b", 305, 310, second)
    assert causes(trace.write(tmp_path / "x.reel")) == [
        ("launch bound", 170, "aten::sum", HERE.format(7)),
        ("launch bound", 20, None, None),
        ("launch bound", 15, "AddBackward0", None),
    ]


def test_what_was_launched_before_the_trace_began_waited_in_the_queue(tmp_path: Path) -> None:
    trace = Trace()
    trace.kernel("a", 30, 100)
    trace.kernel("b", 120, 130)
    assert causes(trace.write(tmp_path / "x.reel")) == [("queue", 20, None, None)]


def test_a_step_has_the_kernels_that_it_launched(tmp_path: Path) -> None:
    trace = Trace()
    launches = [trace.launch(10 * step, 10 * step + 1, step=step // 2) for step in range(4)]
    for number, launch in enumerate(launches):
        trace.kernel("k", 100 + 10 * number, 106 + 10 * number, launch)
    reel = trace.write(tmp_path / "x.reel")
    assert causes(reel) == [("queue", 12, None, None)]
    assert causes(reel, step=1) == [("queue", 4, None, None)]
    assert causes(reel, device="cuda:1") == []


@pytest.mark.parametrize("kernels", [0, 1])
def test_nothing_is_idle_without_two_kernels(tmp_path: Path, kernels: int) -> None:
    trace = Trace()
    trace.call("aten::mm", 0, 10)
    for number in range(kernels):
        trace.kernel("a", 20 * number, 20 * number + 5)
    assert causes(trace.write(tmp_path / "x.reel")) == []


def test_an_activity_of_no_length_does_not_end_a_gap(tmp_path: Path) -> None:
    """The last activity takes no time, and still ends the span."""
    trace = Trace()
    launches = [trace.launch(start, start + 1) for start in (0, 2, 4)]
    for start, end, launch in zip((10, 15, 30), (12, 15, 30), launches, strict=True):
        trace.kernel("k", start, end, launch)
    assert causes(trace.write(tmp_path / "x.reel")) == [("queue", 18, None, None)]
