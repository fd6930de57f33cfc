"""What if: replays of traces of a few events, whose new ends can be added up by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import torchreel
from tests.analyze.gpu.test_critical_path import waited
from tests.analyze.gpu.traces import Trace
from torchreel.analyze.gpu.model.graph import RUN, graph_of
from torchreel.analyze.gpu.model.run import NO_KERNELS, device_runs
from torchreel.analyze.gpu.what_if import Outcome, parse_change, refusal, what_if
from torchreel.errors import OptionError


def only(reel: torchreel.Reel, pattern: str, factor: float = 2.0, step: int | None = None) -> Outcome:
    (outcome,) = what_if(reel, [(pattern, factor)], step).outcomes
    assert outcome.refused is None
    return outcome


def test_a_kernel_that_is_waited_for(tmp_path: Path) -> None:
    trace = Trace()
    waited(trace)
    reel = trace.write(tmp_path / "x.reel")
    faster = only(reel, "gemm")
    assert (faster.kernels, faster.calls, faster.before_ns, faster.after_ns) == (1, 0, 530, 530 - 235)
    assert faster.saved_ns == 235
    assert only(reel, "gemm", 0.5).after_ns == 530 + 470
    # So fast that the host does not wait any more: its own time is left.
    assert only(reel, "gemm", 1e9).after_ns == 110 + 10
    assert only(reel, "gemm", 1).after_ns == 530


def test_a_call_takes_its_kernels_along_and_waits_are_not_work(tmp_path: Path) -> None:
    trace = Trace()
    waited(trace)
    reel = trace.write(tmp_path / "x.reel")
    # The 10 ns before the launch become 5, the kernel 235, and of item the 10 ns after the wait become 5.
    assert only(reel, "op:aten::mm").after_ns == 530 - 5 - 235
    assert only(reel, "op:aten::item").after_ns == 530 - 5
    assert only(reel, "kernel:aten::mm").after_ns == 530


def test_a_faster_launch_is_no_faster_kernel(tmp_path: Path) -> None:
    trace = Trace()
    waited(trace)
    found = only(trace.write(tmp_path / "x.reel"), "cudaLaunchKernel")
    assert (found.kernels, found.calls, found.saved_ns) == (0, 1, 0)


def test_a_kernel_off_the_path_changes_nothing(tmp_path: Path) -> None:
    """The loader makes the second kernel late: only a faster loader helps."""
    trace = Trace()
    first = trace.launch(0, 5)
    trace.call("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 30, 300, "range")
    second = trace.launch(310, 320)
    trace.kernel("a", 10, 100, first)
    trace.kernel("b", 330, 400, second)
    reel = trace.write(tmp_path / "x.reel")
    assert only(reel, "^a$", 10).saved_ns == 0
    assert only(reel, "data loader").saved_ns == 135
    # Ten times faster, the host launches at 67, but "a" runs until 100 and holds "b": 100 + 70.
    assert only(reel, "DataLoader", 10).after_ns == 170


def test_streams_that_wait_for_each_other(tmp_path: Path) -> None:
    trace = Trace()
    first = trace.launch(0, 5)
    record = trace.launch(12, 13, "cudaEventRecord")
    wait = trace.launch(20, 21, "cudaStreamWaitEvent")
    second = trace.launch(30, 31)
    trace.kernel("a", 10, 100, first)
    trace.kernel("b", 103, 200, second, stream=8)
    trace.sync("Stream Wait Event", 20, 21, wait, stream=8, wait_on_stream=7, wait_on_launch=record)
    reel = trace.write(tmp_path / "x.reel")
    assert only(reel, "^a$").after_ns == 55 + 3 + 97
    # The launch of "b" at 30 and the 10 ns that launches take here hold it.
    assert only(reel, "^a$", 1e9).after_ns == 40 + 97


def test_modules_take_their_backward_along(tmp_path: Path) -> None:
    trace = Trace()
    module = trace.module("Net.fc")
    trace.call("aten::mm", 0, 10)
    first = trace.launch(0, 5, module=module)
    trace.call("MmBackward0", 20, 40, "backward", 1, fwd_thread=0, module=module)
    second = trace.launch(30, 35, thread=1, module=module)
    trace.kernel("a", 10, 110, first)
    trace.kernel("b", 110, 210, second)
    reel = trace.write(tmp_path / "x.reel")
    found = only(reel, r"module:fc$")
    assert (found.kernels, found.after_ns) == (2, 110)


def test_of_a_step(tmp_path: Path) -> None:
    trace = Trace()
    for step in range(2):
        trace.call(f"ProfilerStep#{step}", 100 * step, 100 * step + 100, "range", step=step)
        launch = trace.launch(100 * step + 10, 100 * step + 12, step=step)
        trace.step(step, 100 * step, 100 * step + 100)
        trace.kernel(f"k{step}", 100 * step + 20, 100 * step + 90, launch, **({"dur_ns": 180} if step else {}))
    reel = trace.write(tmp_path / "x.reel")
    found = only(reel, "k1", step=1)
    assert (found.before_ns, found.after_ns) == (200, 110)
    assert what_if(reel, [("k", 2.0)], step=5).notes == ("Process 0 has no step 5.",)


def test_several_changes_at_once(tmp_path: Path) -> None:
    trace = Trace()
    waited(trace)
    reel = trace.write(tmp_path / "x.reel")
    (outcome,) = what_if(reel, [("gemm", 2.0), ("ge", 5.0), ("aten::item", 2.0)]).outcomes
    assert (outcome.kernels, outcome.after_ns) == (1, 105 + 3 + 5)  # item takes 2.5, rounded, and 5; no wait is left


def test_a_replay_that_is_not_exact_is_refused(tmp_path: Path) -> None:
    trace = Trace()
    waited(trace)
    (run,) = device_runs(trace.write(tmp_path / "x.reel"))
    graph = graph_of(run)
    assert refusal(graph) is None
    wrong = replace(graph, lag=np.where(graph.kind == RUN, graph.lag + 7, graph.lag))
    assert refusal(wrong) == (
        "The replay does not give what was recorded: 1 of 1 kernels end at another time, by up to 7 ns."
    )


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    trace = Trace()
    trace.call("aten::mm", 0, 10)
    assert what_if(trace.write(tmp_path / "x.reel"), [("mm", 2.0)]).notes == (NO_KERNELS,)
    waited(other := Trace())
    found = what_if(other.write(tmp_path / "y.reel"), [("nowhere", 2.0)])
    assert found.notes == ("No kernel, call or module has a name in which 'nowhere' is found.",)


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf")])
def test_impossible_factors(tmp_path: Path, factor: float) -> None:
    waited(trace := Trace())
    with pytest.raises(OptionError, match="times faster: give a number above 0"):
        what_if(trace.write(tmp_path / "x.reel"), [("gemm", factor)])


def test_wrong_expressions(tmp_path: Path) -> None:
    waited(trace := Trace())
    with pytest.raises(OptionError, match="is not a regular expression"):
        what_if(trace.write(tmp_path / "x.reel"), [("(", 2.0)])


@pytest.mark.parametrize(("text", "change"), [("gemm=2x", ("gemm", 2.0)), ("a=b=1.5", ("a=b", 1.5))])
def test_changes_are_read(text: str, change: tuple[str, float]) -> None:
    assert parse_change(text) == change


@pytest.mark.parametrize("text", ["gemm", "=2x", "gemm=", "gemm=fast", "gemm=nan", "gemm=infx"])
def test_changes_that_cannot_be_read(text: str) -> None:
    with pytest.raises(OptionError, match="cannot be read: give an expression"):
        parse_change(text)
