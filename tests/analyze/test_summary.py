"""The summary of small reels, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchreel
from tests.synthetic import Process, call, write_reel
from torchreel.analyze import summary
from torchreel.analyze.summary import Peak, Summary
from torchreel.errors import CorruptReelError


def test_whole_summary(tmp_path: Path) -> None:
    # GIVEN a process that closed its recording and a second one that died and had lost events
    work = call("step", 5, call("aten::mm", 10, inputs="[[2]]", module="Net"), kind="range", step=0)
    whole = Process({"main": [work, call("aten::add", 3, step=1)], "other": [call("aten::add", 4)]})
    whole.allocs = [("alloc", 100), ("alloc", 50), ("free", 100), ("alloc", 20)]
    dead = Process({"main": []}, name="host-2", pid=2, complete=False, lost_events=7, allocs=[("alloc", 400)])
    path = write_reel(tmp_path / "run.reel", whole, dead)
    # WHEN it is summed up, THEN every number is there
    assert summary(torchreel.load(path)) == Summary(
        reel=str(path),
        wall_ns=18,
        ops=4,
        threads=3,
        steps=2,
        processes=2,
        incomplete_processes=("host-2",),
        lost_events=7,
        peak_memory=(Peak("host-2", "cpu", 400), Peak("host-1", "cpu", 150)),
        top_level_ns={"range": 15, "op": 7},
        recorded={"shapes": True, "memory": True, "stacks": False, "modules": True, "counters": False},
    )


def test_dict_has_plain_values(tmp_path: Path) -> None:
    path = write_reel(tmp_path / "run.reel", Process({"main": [call("aten::add", 3)]}, allocs=[("alloc", 8)]))
    assert summary(torchreel.load(path)).as_dict() == {
        "reel": str(path),
        "wall_ns": 3,
        "ops": 1,
        "threads": 1,
        "steps": 0,
        "processes": 1,
        "incomplete_processes": [],
        "lost_events": 0,
        "peak_memory": [{"process": "host-1", "device": "cpu", "bytes": 8}],
        "top_level_ns": {"op": 3},
        "recorded": {"shapes": False, "memory": True, "stacks": False, "modules": False, "counters": False},
    }


def test_damage_found_while_reading_is_a_sentence(tmp_path: Path) -> None:
    # GIVEN a Parquet file with its head and its end, and rubbish between them
    path = write_reel(tmp_path / "run.reel", Process({"main": [call(f"op{n}", n) for n in range(2000)]}))
    ops = path / "host-1" / "ops.parquet"
    data = bytearray(ops.read_bytes())
    data[10 : len(data) // 2] = b"\xff" * (len(data) // 2 - 10)
    ops.write_bytes(bytes(data))
    with pytest.raises(
        CorruptReelError, match=r"run\.reel/host-1/ops\.parquet is damaged \(.*\): restore it from a copy"
    ):
        summary(torchreel.load(path))
