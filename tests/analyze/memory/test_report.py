"""The whole report: of every real snapshot, and of reels that make little sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analyze.memory.traces import Trace, user
from tests.snapshots import SNAPSHOTS, snapshot
from torchreel.analyze.memory.report import memory_reports
from torchreel.cli.terminal.formats import plain
from torchreel.ingest import open_source
from torchreel.reel import load

HISTORIES = {
    "finetune_torch21_midrun": "mid-run",
    "linear_hopper": "complete",
    "lm48_fwd_amp_ctx256_midrun": "mid-run",
    "lm48_fwd_ctx128_midrun": "mid-run",
    "lm48_fwd_ctx512_midrun": "mid-run",
    "lm4_fwd_ctx100": "complete",
    "lm4_fwd_ctx150": "complete",
    "lm4_train_amp_ctx200": "complete",
    "lm4_train_ctx100": "complete",
    "lm_expandable_bf16_ctx512": "mid-run",
    "lm_expandable_ctx128": "mid-run",
    "lm_windows_midrun": "mid-run",
    "state_only_a": "none",
    "state_only_b": "none",
    "state_only_c": "none",
    "state_only_d": "none",
    "state_only_max_split": "none",
    "three_gpus_expandable_oom": "complete",
}


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.stem)
def test_every_real_snapshot(path: Path) -> None:
    with open_source(path) as reel:
        reports = memory_reports(reel)
    assert reports
    for report in reports:
        assert report.history == HISTORIES.get(path.stem, report.history)
        assert sum(report.holders["bytes"].to_pylist()) == report.held
        assert sum(report.categories["bytes"].to_pylist()) == report.held
        assert json.loads(json.dumps(plain(report.as_dict())))["device"] == report.device
        if report.peak is not None:
            assert report.peak.allocated.bytes == report.held <= report.peak.active.bytes
            assert report.peak.reserved is not None
            assert report.peak.reserved.bytes >= report.peak.active.bytes


def test_out_of_memory() -> None:
    with open_source(snapshot("three_gpus_expandable_oom")) as reel:
        failed = [report for report in memory_reports(reel) if report.failures]
    (report,) = failed
    (failure,) = report.failures
    assert report.device == "cuda:1"
    assert failure.line == "train/models.py:181 update_nodes"
    assert failure.device_free is not None and failure.device_free < failure.bytes
    assert failure.allocated + failure.bytes > failure.reserved


def test_the_only_event_of_a_state_is_no_history(tmp_path: Path) -> None:
    trace = Trace()
    trace.alloc(0, 8, user(1))
    trace.segment(0, 1 << 21, (512, "active_allocated"), (512, "active_allocated"), ((1 << 21) - 1024, "inactive"))
    (report,) = memory_reports(load(trace.write(tmp_path / "a.reel")))
    assert (report.history, report.peak, report.leaks, report.final_blocks) == ("none", None, None, 2)


def test_a_reel_that_makes_little_sense(tmp_path: Path) -> None:
    # GIVEN numbers that no program makes: ids of nothing, a call within itself, sizes beyond all memory, odd times
    trace = Trace("cpu")
    for number in range(40):
        trace.event("alloc", number % 3, 2**62, op=number, thread=7, stack=99)
        trace.event("free", number % 5, -1, category="\x1b[31m")
        trace.event("no such action", None, -5)
    trace.rows["allocs"][3]["time_ns"] = -(2**62)
    trace.rows["allocs"][5]["device"] = None
    trace.add("ops", id=1, parent=1, name=None, kind=None, start_ns=-5, dur_ns=-7, thread=None)
    trace.add("ops", id=2, parent=1, name="x", kind="module", module=5, start_ns=2**62, dur_ns=2**61)
    trace.add("segments", device="cpu", address=-7, size=-9, type=None)
    trace.add("blocks", device="cpu", address=3, size=2**62, state=None)
    trace.add("settings", name="x", value="[" * 10_000)
    trace.add("annotations", device=None, time_ns=None, name=None, stage=None)
    trace.add("steps", step=None, start_ns=None, end_ns=None)
    reel = load(trace.write(tmp_path / "a.reel"))
    # THEN it is reported, whatever that says
    for report in memory_reports(reel):
        json.dumps(plain(report.as_dict()))


def test_an_empty_reel(tmp_path: Path) -> None:
    assert memory_reports(load(Trace().write(tmp_path / "a.reel"))) == []
