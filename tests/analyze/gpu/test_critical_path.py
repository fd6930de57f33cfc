"""The critical path through traces of a few events."""

from __future__ import annotations

from pathlib import Path

import torchreel
from tests.analyze.gpu.traces import Trace
from torchreel.analyze.gpu.critical_path import NO_EVENTS, critical_path, pieces
from torchreel.analyze.gpu.model.graph import graph_of
from torchreel.analyze.gpu.model.run import NO_KERNELS, device_runs


def path(reel: torchreel.Reel, step: int | None = None) -> list[tuple[int, int, str, str]]:
    (run,) = device_runs(reel)
    return [(piece.start, piece.end, piece.what, piece.kind) for piece in pieces(graph_of(run), step)]


def waited(trace: Trace) -> None:
    """A kernel that the host launches at 10 and waits for from 110 to 520."""
    trace.call("aten::mm", 0, 100)
    launch = trace.launch(10, 20)
    trace.call("aten::item", 105, 530)
    trace.launch(110, 520, "cudaStreamSynchronize")
    trace.kernel("gemm", 30, 500, launch)


def test_a_wait_leads_to_the_kernel_and_that_to_its_launch(tmp_path: Path) -> None:
    trace = Trace()
    waited(trace)
    reel = trace.write(tmp_path / "x.reel")
    assert path(reel) == [
        (0, 10, "aten::mm", "host"),
        (10, 30, "aten::mm", "launch"),
        (30, 500, "gemm", "compute"),
        (500, 520, "aten::item", "sync"),
        (520, 530, "aten::item", "host"),
    ]
    found = critical_path(reel)
    assert found.notes == ()
    assert [(row["what"], row["kind"], row["ns"], row["count"]) for row in found.rows.to_pylist()] == [
        ("gemm", "compute", 470, 1),
        ("aten::item", "sync", 20, 1),
        ("aten::mm", "launch", 20, 1),
        ("aten::item", "host", 10, 1),
        ("aten::mm", "host", 10, 1),
    ]
    assert abs(sum(found.rows["percent"].to_pylist()) - 100) < 1e-9


def test_kernels_of_a_stream_follow_each_other(tmp_path: Path) -> None:
    """Both are launched early: the second waits for the first, and the host decides nothing after 5."""
    trace = Trace()
    first, second = trace.launch(5, 6), trace.launch(10, 11)
    trace.kernel("a", 20, 100, first)
    trace.kernel("b", 104, 200, second)
    assert path(trace.write(tmp_path / "x.reel")) == [
        (5, 20, "a", "launch"),
        (20, 100, "a", "compute"),
        (100, 104, "b", "queue"),
        (104, 200, "b", "compute"),
    ]


def test_a_late_launch_is_on_the_path(tmp_path: Path) -> None:
    trace = Trace()
    first = trace.launch(0, 5)
    trace.call("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 30, 300, "range")
    second = trace.launch(310, 320)
    trace.kernel("a", 10, 100, first)
    trace.kernel("b", 330, 400, second)
    assert path(trace.write(tmp_path / "x.reel")) == [
        (0, 5, "(no op)", "host"),
        (5, 30, "(no op)", "host"),
        (30, 300, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data loader"),
        (300, 310, "(no op)", "host"),
        (310, 330, "b", "launch"),
        (330, 400, "b", "compute"),
    ]


def test_a_stream_that_waits_for_an_event_leads_to_the_other_stream(tmp_path: Path) -> None:
    """Stream 8 waits for what stream 7 had been given at 12."""
    trace = Trace()
    first = trace.launch(0, 5)
    record = trace.launch(12, 13, "cudaEventRecord")
    wait = trace.launch(20, 21, "cudaStreamWaitEvent")
    second = trace.launch(30, 31)
    trace.kernel("a", 10, 100, first)
    trace.kernel("b", 103, 200, second, stream=8)
    trace.sync("Stream Wait Event", 20, 21, wait, stream=8, wait_on_stream=7, wait_on_launch=record)
    reel = trace.write(tmp_path / "x.reel")
    assert path(reel) == [
        (0, 10, "a", "launch"),
        (10, 100, "a", "compute"),
        (100, 103, "b", "queue"),
        (103, 200, "b", "compute"),
    ]
    assert critical_path(reel).notes == ()


def test_without_events_the_path_says_that_it_does_not_know_them(tmp_path: Path) -> None:
    trace = Trace()
    first, second = trace.launch(0, 5), trace.launch(30, 31)
    trace.kernel("a", 10, 100, first)
    trace.kernel("b", 103, 200, second, stream=8)
    reel = trace.write(tmp_path / "x.reel")
    assert path(reel)[-2:] == [(30, 103, "b", "launch"), (103, 200, "b", "compute")]
    assert critical_path(reel).notes == (NO_EVENTS,)


def test_without_events_a_kernel_that_began_right_after_another_waited_for_it(tmp_path: Path) -> None:
    """Both were launched at once; the one of stream 8 could have begun at about 10 us, and did when "a" had ended."""
    trace = Trace()
    first, second = trace.launch(0, 5), trace.launch(30, 31)
    trace.kernel("a", 10_000, 90_000, first)
    trace.kernel("b", 93_000, 99_000, second, stream=8)
    reel = trace.write(tmp_path / "x.reel")
    assert path(reel)[1:] == [
        (10_000, 90_000, "a", "compute"),
        (90_000, 93_000, "b", "queue"),
        (93_000, 99_000, "b", "compute"),
    ]
    assert critical_path(reel).notes == (NO_EVENTS,)


def test_backward_is_forked_and_joined(tmp_path: Path) -> None:
    """Thread 0 calls backward at 50 and goes on at 400; thread 1 works from 60 to 390, most of it before a launch."""
    trace = Trace()
    trace.call("aten::mean", 0, 50)
    trace.call("MeanBackward0", 60, 390, "backward", 1, fwd_thread=0)
    launch = trace.launch(300, 310, thread=1)
    trace.call("aten::step", 400, 450)
    trace.kernel("k", 320, 330, launch)
    assert path(trace.write(tmp_path / "x.reel")) == [
        (0, 50, "aten::mean", "host"),
        (50, 60, "(no op)", "host"),
        (60, 300, "MeanBackward0", "host"),
        (300, 310, "MeanBackward0", "host"),
        (310, 390, "MeanBackward0", "host"),
        (390, 400, "(no op)", "host"),
        (400, 450, "aten::step", "host"),
    ]


def test_a_thread_that_only_watches_is_not_on_the_path(tmp_path: Path) -> None:
    trace = Trace()
    launch = trace.launch(0, 5)
    trace.call("threading.py(359): wait", 0, 9_999, "python", 1)
    trace.kernel("a", 10, 100, launch)
    assert path(trace.write(tmp_path / "x.reel")) == [(0, 10, "a", "launch"), (10, 100, "a", "compute")]


def test_a_step_ends_with_the_last_kernel_that_it_launched(tmp_path: Path) -> None:
    trace = Trace()
    for step in range(2):
        trace.call(f"ProfilerStep#{step}", 100 * step, 100 * step + 100, "range", step=step)
        launch = trace.launch(100 * step + 10, 100 * step + 12, step=step)
        trace.step(step, 100 * step, 100 * step + 100)
        trace.kernel(f"k{step}", 100 * step + 20, 100 * step + 90, launch, **({"dur_ns": 180} if step else {}))
    reel = trace.write(tmp_path / "x.reel")
    assert path(reel, 0) == [(0, 10, "(no op)", "host"), (10, 12, "(no op)", "host"), (12, 100, "(no op)", "host")]
    assert path(reel, 1) == [
        (100, 110, "(no op)", "host"),
        (110, 120, "k1", "launch"),
        (120, 300, "k1", "compute"),
    ]
    assert critical_path(reel, 7).notes == ("Process 0 has no step 7.",)
    assert critical_path(reel, 7).rows.num_rows == 0


def test_without_kernels_it_says_how_to_record_them(tmp_path: Path) -> None:
    trace = Trace()
    trace.call("aten::mm", 0, 10)
    found = critical_path(trace.write(tmp_path / "x.reel"))
    assert (found.rows.num_rows, found.notes) == (0, (NO_KERNELS,))
