from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torchreel.export import export

from .reels import ProcessBuilder, build, training_step


def check(profile: dict[str, Any], frames: int) -> None:
    """What speedscope's importer demands of an evented profile."""
    last, stack = profile["startValue"], []
    for event in profile["events"]:
        assert event["at"] >= last
        assert 0 <= event["frame"] < frames
        last = event["at"]
        if event["type"] == "O":
            stack.append(event["frame"])
        else:
            assert stack.pop() == event["frame"]
    assert not stack
    assert last <= profile["endValue"]


def test_a_step(tmp_path: Path) -> None:
    process = ProcessBuilder("a-1", 1, start_ns=None)
    training_step(process)
    process.rows["allocs"].clear()
    export(build(tmp_path / "run.reel", process), tmp_path / "out.json", "speedscope")
    file = json.loads((tmp_path / "out.json").read_text())
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert file["name"] == "run.reel"
    names = [frame["name"] for frame in file["shared"]["frames"]]
    main, autograd = file["profiles"]
    for profile in (main, autograd):
        assert (profile["type"], profile["unit"]) == ("evented", "nanoseconds")
        check(profile, len(names))
    assert main["name"] == "thread 1 (MainThread)"
    assert main["startValue"] == 0
    assert [(e["type"], names[e["frame"]], e["at"]) for e in autograd["events"]] == [
        ("O", "autograd::engine::evaluate_function: AddmmBackward0", 29_000),
        ("O", "AddmmBackward0", 30_000),
        ("C", "AddmmBackward0", 48_000),
        ("C", "autograd::engine::evaluate_function: AddmmBackward0", 49_000),
    ]


def test_overlapping_and_empty_slices_are_opened_and_closed_in_order(tmp_path: Path) -> None:
    process = ProcessBuilder("a-1", 1)
    outer = process.range("outer", 0, 100)
    process.range("late", 50, 150, parent=outer)
    process.op("empty", 100, 100, parent=outer)
    process.op("empty", 100, 100, parent=outer)
    other = ProcessBuilder("b-2", 2, rank=1)
    other.op("aten::mm", 0, 10)
    export(build(tmp_path / "run.reel", process, other), tmp_path / "out.json", "speedscope")
    file = json.loads((tmp_path / "out.json").read_text())
    for profile in file["profiles"]:
        check(profile, len(file["shared"]["frames"]))
    assert [profile["name"] for profile in file["profiles"]] == [
        "python 1: thread 1 (MainThread)",
        "python 1: thread 1 (overlapping ranges)",
        "rank 1: python 2: thread 2 (MainThread)",
    ]
