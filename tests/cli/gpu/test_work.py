"""The sections of `torchreel gpu` on modules, FLOP and replayed graphs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.analyze.gpu.test_modules import checkpointed
from tests.analyze.gpu.test_replays import captured, replayed
from tests.analyze.gpu.test_roofline import products
from tests.analyze.gpu.traces import Trace
from tests.cli.conftest import Outcome

Run = Callable[..., Outcome]


def section(outcome: Outcome, heading: str) -> list[list[str]]:
    """The words of a section's lines."""
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.split(f"\n{heading}\n", 1)[1].split("\n\n", 1)[0].splitlines()
    return [line.split() for line in lines]


def test_modules(torchreel: Run, directory: Path) -> None:
    checkpointed(trace := Trace())
    trace.write(directory / "x.reel")
    rows = section(torchreel("gpu", "x.reel"), "Modules")
    assert ["0.070us", "0.070us", "0.010us", "0.040us", "0.020us", "3", "Net.fc"] in rows


def test_roofline_and_a_peak_of_ones_own(torchreel: Run, directory: Path) -> None:
    products(trace := Trace(), "Strange 1")
    trace.write(directory / "x.reel")
    text = " ".join(" ".join(words) for words in section(torchreel("gpu", "x.reel"), "Roofline"))
    assert "The device 'Strange 1' has no known peak: give it with --peak" in text
    outcome = torchreel("gpu", "x.reel", "--peak", "400T,1TB")
    text = " ".join(" ".join(words) for words in section(outcome, "Roofline"))
    assert "0.002 TFLOP in 100.000us, and 0.002 run again: MFU 5.00 %, 10.00 % with what was run again" in text
    found = json.loads(torchreel("gpu", "x.reel", "--peak", "400T,1TB", "--format", "json").out)
    assert [row["bound"] for row in found["roofline"]] == ["memory", "memory"]
    assert found["mfu"][0]["flops"] == 2 * 10**9
    wrong = torchreel("gpu", "x.reel", "--peak", "fast")
    assert wrong.code != 0 and wrong.err.count("\n") <= 3 and "The peak 'fast' cannot be read" in wrong.err


def test_replayed_graphs(torchreel: Run, directory: Path) -> None:
    captured(trace := Trace())
    replayed(trace)
    trace.write(directory / "x.reel")
    rows = section(torchreel("gpu", "x.reel"), "Replayed graphs")
    assert rows[-1] == ["0.027us", "3", "aten::mm", "me/train.py:5", "main"]
    found = json.loads(torchreel("gpu", "x.reel", "--format", "json").out)
    assert len(found["replays"]) == 3
    assert "3 of 3 activities of 1 replay of graphs were attributed to captured launches." in found["missing"]


def test_parts_without_an_answer_are_left_out(torchreel: Run, directory: Path) -> None:
    trace = Trace()
    trace.kernel("k", 10, 20, trace.launch(0, 5))
    trace.write(directory / "x.reel")
    outcome = torchreel("gpu", "x.reel")
    assert not any(heading in outcome.out for heading in ("\nModules\n", "\nRoofline\n", "\nReplayed graphs\n"))
