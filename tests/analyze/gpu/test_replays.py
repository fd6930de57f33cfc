"""Kernels of replayed graphs, and the ops of the capture behind them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import torchreel
from tests.analyze.gpu.traces import Trace
from tests.gpu_traces import gpu_reel
from torchreel.analyze.gpu.replays import NO_CAPTURE, replays

KERNELS = ("gemm", "Memcpy DtoD", "relu")


def captured(trace: Trace, names: tuple[str | None, ...] = ("gemm", "copy", "relu")) -> None:
    """A capture of three launches, between two that run at once."""
    first = trace.launch(0, 1, args='{"kernel": "gemm"}')
    trace.launch(10, 11, "hipStreamBeginCapture")
    trace.call("aten::mm", 20, 90, line=5)
    for start, name in zip((21, 30, 40), names, strict=True):
        if name == "copy":
            trace.launch(start, start + 2, "hipMemcpyAsync", args='{"bytes": "8"}')
        else:
            trace.launch(start, start + 2, args=None if name is None else f'{{"kernel": "{name}"}}')
    trace.launch(100, 101, "hipStreamEndCapture")
    trace.kernel("gemm", 2, 3, first)


def replayed(trace: Trace, start: int = 200) -> None:
    launch = trace.launch(start, start + 5, "hipGraphLaunch")
    for number, name in enumerate(KERNELS):
        begin = start + 10 * (number + 1)
        trace.kernel(name, begin, begin + 8 + number, launch, kind="copy" if name.startswith("Memcpy") else "compute")


def test_a_capture_in_the_same_file(tmp_path: Path) -> None:
    captured(trace := Trace())
    replayed(trace)
    replayed(trace, 300)
    found = replays(trace.write(tmp_path / "x.reel"))
    assert (found.replays, found.activities, found.attributed) == (2, 6, 6)
    assert found.notes == ("6 of 6 activities of 2 replays of graphs were attributed to captured launches.",)
    assert {(row["op"], row["line"]) for row in found.rows.to_pylist()} == {("aten::mm", "me/train.py:5 main")}
    assert found.rows["device_ns"].to_pylist() == [8, 9, 10, 8, 9, 10]


def test_a_capture_in_another_reel(tmp_path: Path) -> None:
    replayed(trace := Trace())
    captured(other := Trace())
    reel = trace.write(tmp_path / "x.reel")
    assert replays(reel).notes[1:] == (NO_CAPTURE,)
    assert replays(reel, [other.write(tmp_path / "y.reel")]).attributed == 3


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (
            ("gemm", "copy", "tanh"),
            "A replay of 3 activities fits no capture: activity 3 is 'relu', the captured launch 'tanh'.",
        ),
        (("gemm", "relu"), "A replay of 3 activities fits no capture: those at hand have 2 launches."),
        (
            (None, "copy", None),
            "The launches of the capture do not name their kernels, so that nothing shows whether they fit.",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, names: tuple[str | None, ...], why: str) -> None:
    trace = Trace()
    trace.launch(10, 11, "hipStreamBeginCapture")
    for number, name in enumerate(names):
        call = "hipMemcpyAsync" if name == "copy" else "hipLaunchKernel"
        args = None if name in (None, "copy") else f'{{"kernel": "{name}"}}'
        trace.launch(20 + 10 * number, 25 + 10 * number, call, args=args)
    trace.launch(100, 101, "hipStreamEndCapture")
    replayed(trace)
    found = replays(trace.write(tmp_path / "x.reel"))
    assert (found.attributed, found.activities) == (0, 3)
    assert found.notes == ("0 of 3 activities of 1 replay of graphs were attributed to captured launches.", why)


def test_no_replay_no_word(tmp_path: Path) -> None:
    captured(trace := Trace())
    found = replays(trace.write(tmp_path / "x.reel"))
    assert (found.replays, found.attributed, found.notes) == (0, 0, ())


REPLAY, CAPTURE = "mi300_vllm_graph_replay.json.gz", "mi300_vllm_graph_capture.pt.trace.json.gz"


def in_two_reels() -> tuple[torchreel.Reel, list[torchreel.Reel]]:
    return gpu_reel(REPLAY), [gpu_reel(CAPTURE)]


def test_a_real_replay_of_vllm() -> None:
    reel, captures = in_two_reels()
    found = replays(reel, captures)
    assert (found.replays, found.activities, found.attributed) == (1, 421, 421)
    ops = Counter(found.rows["op"].to_pylist())
    assert None not in ops and ops["vllm::unified_attention_with_output"] > 30
    assert sum(line is not None for line in found.rows["line"].to_pylist()) == 421
    assert replays(reel).notes[1:] == (NO_CAPTURE,)
