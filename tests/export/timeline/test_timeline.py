from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from tests.export.reels import EPOCH, ProcessBuilder, build, training_step
from torchreel.errors import CorruptReelError
from torchreel.export.timeline.timeline import Timeline, runs


def test_a_batch_is_cut_where_a_key_changes() -> None:
    batch = pa.record_batch({"a": [1, 1, 2, 2, 2], "b": [0, 0, 0, 1, 1], "value": [10, 11, 12, 13, 14]})
    parts = [(a, b, part.column("value").to_pylist()) for a, b, part in runs(batch, "a", "b")]
    assert parts == [(1, 0, [10, 11]), (2, 0, [12]), (2, 1, [13, 14])]
    assert list(runs(batch.slice(0, 0), "a")) == []


def test_slices_come_track_by_track_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    process = ProcessBuilder("a-1", 1)
    process.thread(1, 2, "other")
    process.op("second", 20, 30)
    process.op("on the other", 5, 6, thread=1)
    process.op("first", 0, 10)
    process.range("apart", 0, 40, **{"async": True})
    with Timeline(build(tmp_path / "r.reel", process)) as timeline:
        found = [
            (track.name, part.column("name").to_pylist())
            for track, part in timeline.slices("ops", timeline.processes[0], ["name"])
        ]
        assert (timeline.first_ns(), timeline.last_ns()) == (EPOCH, EPOCH + 1_000_000)
    assert found == [
        ("thread 1 (MainThread)", ["first", "second"]),
        ("thread 1 (overlapping ranges)", ["apart"]),
        ("thread 2 (other)", ["on the other"]),
    ]


def test_arrows_go_from_a_forward_call_to_the_outermost_backward_call(tmp_path: Path) -> None:
    process = ProcessBuilder("a-1", 1)
    forward = process.op("forward", 0, 10)
    outer = process.op("outer", 20, 40, fwd=forward)
    process.op("inner", 25, 35, fwd=forward, parent=outer)
    process.op("again", 50, 60, fwd=forward)
    process.op("lost its forward call", 70, 80, fwd=999)
    with Timeline(build(tmp_path / "r.reel", process)) as timeline:
        ends = [
            tuple(row[name] for name in ("arrow", "out", "start_ns"))
            for _, part in timeline.arrow_ends("ops", timeline.processes[0])
            for row in part.to_pylist()
        ]
    assert ends == [(1, True, EPOCH), (1, False, EPOCH + 20), (1, False, EPOCH + 50)]


def test_a_thread_that_is_not_named_and_a_process_without_threads(tmp_path: Path) -> None:
    process = ProcessBuilder("a-1", 1)
    process.rows["threads"].clear()
    process.op("somewhere", 0, 10, thread=3)
    process.op("nowhere", 20, 30, thread=None)
    with Timeline(build(tmp_path / "r.reel", process)) as timeline:
        assert timeline.home(timeline.processes[0]) == -1
        assert sorted(track.name for track in timeline.tracks()) == ["thread 3", "unknown thread"]


def test_what_was_spilled_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spill))
    process = ProcessBuilder("a-1", 1)
    training_step(process)
    reel = build(tmp_path / "r.reel", process)
    with Timeline(reel):
        assert len(list(spill.iterdir())) == 1
    assert list(spill.iterdir()) == []
    ops = tmp_path / "r.reel" / "a-1" / "ops.parquet"
    data = bytearray(ops.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    ops.write_bytes(data)
    with pytest.raises(CorruptReelError, match=r"ops\.parquet is damaged"):
        Timeline(reel)
    assert list(spill.iterdir()) == []
