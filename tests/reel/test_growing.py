"""A reel that is read while it is recorded: each look shows what is new, and in the end what a closed reel has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import torchreel
from torchreel.reel import Reel
from torchreel.reel.growing import GrowingReel, LivingProcess

# Times are those of the clock as it was known at the first look; all else is the same.
TIMES = {"start_ns", "dur_ns", "self_ns", "time_ns", "end_ns"}


def rows(reel: Reel, table: str, without: set[str] = TIMES) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in without} for row in reel.table(table).to_pylist()]


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()


@pytest.fixture
def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())


def test_what_was_read_while_it_grew_is_what_the_closed_reel_has(tmp_path: Path, model: torch.nn.Module) -> None:
    path = tmp_path / "run.reel"
    optimizer = torch.optim.SGD(model.parameters())
    seen: list[tuple[Reel, int]] = []
    with torchreel.record(path, shapes=True, memory=True, stacks=True, modules=True) as recorder:
        train(model, optimizer)
        recorder.peek()
        growing = GrowingReel(torchreel.load(path))
        for number in range(4):
            with torchreel.range(f"range {number}"):
                train(model, optimizer)
            torchreel.mark(f"mark {number}")
            recorder.peek()
            assert growing.refresh()
            assert growing.is_growing and isinstance(growing.reel.parts[0], LivingProcess)
            seen.append((growing.reel, growing.reel.table("ops").num_rows))
    counts = [count for _, count in seen]
    assert counts == sorted(set(counts))
    # What was opened before has not changed.
    assert [reel.table("ops").num_rows for reel, _ in seen] == counts
    closed = torchreel.load(path)
    last = seen[-1][0]
    for table in ("ops", "allocs", "marks"):
        known = rows(last, table)
        expected = rows(closed, table)
        if table == "ops":
            by_id = {row["id"]: row for row in expected}
            assert known and all(by_id[row["id"]] == row for row in known)
        else:
            assert known and known == expected[: len(known)]
    assert rows(last, "modules") == rows(closed, "modules")
    assert {row["function"] for row in rows(last, "frames")} <= {row["function"] for row in rows(closed, "frames")}
    assert growing.refresh() and not growing.is_growing
    assert growing.reel.table("ops").equals(closed.table("ops"))
    assert not growing.refresh()


def test_sql_over_a_reel_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "run.reel"
    with torchreel.record(path) as recorder:
        torch.ones(3).add(1)
        recorder.peek()
        growing = GrowingReel(torchreel.load(path))
        growing.refresh()
        first = growing.reel
        torch.ones(3).mul(2)
        recorder.peek()
        growing.refresh()
        count = "select count(*) as n from ops where name = 'aten::mul'"
        assert (first.sql(count)["n"][0].as_py(), growing.reel.sql(count)["n"][0].as_py()) == (0, 1)


def test_steps_that_are_counted_by_hand_later_on_replace_those_of_the_optimizer(
    tmp_path: Path, model: torch.nn.Module
) -> None:
    path = tmp_path / "run.reel"
    optimizer = torch.optim.SGD(model.parameters())
    with torchreel.record(path) as recorder:
        train(model, optimizer)
        train(model, optimizer)
        recorder.peek()
        growing = GrowingReel(torchreel.load(path))
        growing.refresh()
        recorder.step()
        train(model, optimizer)
        recorder.peek()
        growing.refresh()
        grown = growing.reel
    closed = torchreel.load(path)
    by_id = {row["id"]: row["step"] for row in closed.table("ops", ["id", "step"]).to_pylist()}
    found = grown.table("ops", ["id", "step"]).to_pylist()
    assert found and all(by_id[row["id"]] == row["step"] for row in found)
    assert [row["step"] for row in grown.table("steps").to_pylist()] == [
        row["step"] for row in closed.table("steps").to_pylist()
    ]


KILLED = """
import sys, torch, torchreel
with torchreel.record(sys.argv[1]) as recorder:
    with torchreel.range("open"):
        torch.ones(3).add(1)
        recorder.peek()
        print("ready", flush=True)
        sys.stdin.read()
"""


def test_a_process_that_is_killed_shows_its_open_calls(tmp_path: Path) -> None:
    path = tmp_path / "run.reel"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        growing = GrowingReel(torchreel.load(path))
        growing.refresh()
        names = growing.reel.table("ops")["name"].to_pylist()
        assert "aten::add" in names and "open" not in names
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert growing.refresh()
    rows_now = growing.reel.table("ops").to_pylist()
    assert [row["open"] for row in rows_now if row["name"] == "open"] == [True]
    assert growing.reel.process_rows()[0]["complete"] is False
    # It will not come back, and is not read again.
    assert not growing.refresh()


def test_a_spool_that_is_cut_within_a_block_waits_for_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "run.reel"
    whole = tmp_path / "whole.reel"
    import shutil

    with torchreel.record(path) as recorder:
        for _ in range(50):
            torch.ones(3).add(1)
        recorder.peek()
        shutil.copytree(path, whole)
    directory = next(whole.glob("*/spool"))
    events = (directory / "events").read_bytes()
    expected = torchreel.load(whole).table("ops").num_rows
    from torchreel.reel.spool import GrowingSpool

    (directory / "events").write_bytes(events[:1000])
    growing = GrowingSpool(directory.parent)
    counts = []
    for size in [*range(1000, len(events), 777), len(events)]:
        with (directory / "events").open("r+b") as file:
            file.seek(0)
            file.write(events[:size])
        growing.advance()
        counts.append(sum(table.num_rows for table in growing.batches("ops")))
    assert counts == sorted(counts) and counts[-1] <= expected
    # Only calls that had not ended before the last promise may be missing.
    assert counts[-1] >= expected - 2
