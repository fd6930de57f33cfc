"""A reel is what was recorded when it was opened, however late its tables are read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torchreel
from torchreel.reel import Reel


def marks(reel: Reel) -> list[str]:
    return sorted(reel.table("marks")["name"].to_pylist())


def test_a_peeked_reel_is_that_of_the_moment(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "x.reel") as recorder:
        torchreel.mark("a")
        torch.ones(3).add(1)
        first = recorder.peek()
        torchreel.mark("b")
        for _ in range(1000):
            torch.ones(3).mul(2)
        second = recorder.peek()
        early = recorder.peek()
        early.table("ops")
        torchreel.mark("c")
    closed = torchreel.load(tmp_path / "x.reel")
    # Only now are they read, from files that are gone.
    assert not list((tmp_path / "x.reel").glob("*/spool"))
    assert (marks(first), marks(second), marks(early)) == (["a"], ["a", "b"], ["a", "b"])
    assert marks(closed) == ["a", "b", "c"]
    assert "aten::mul" not in first.table("ops")["name"].to_pylist()
    counts = [
        reel.sql("select count(*) n from ops where name = 'aten::mul'")["n"][0].as_py() for reel in (second, closed)
    ]
    assert counts == [1000, 1000]
    assert first.process_rows()[0]["complete"] is False
    assert closed.process_rows()[0]["complete"] is True


def test_answers_do_not_change_while_it_is_recorded(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "x.reel") as recorder:
        torchreel.mark("a")
        peeked = recorder.peek()
        loaded = torchreel.load(tmp_path / "x.reel")
        answers = []
        for _ in range(3):
            answers += [reel.sql("select count(*) n from marks")["n"][0].as_py() for reel in (peeked, loaded)]
            torchreel.mark("more")
            recorder.peek()
        assert answers == [1] * 6


def test_more_processes_than_files_that_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchreel.reel import reel as module

    monkeypatch.setattr(module, "_KEPT_OPEN", 0)
    with torchreel.record(tmp_path / "x.reel") as recorder:
        torchreel.mark("a")
        first, second = recorder.peek(), recorder.peek()
        torchreel.mark("b")
        recorder.peek()
        assert marks(first) == ["a"]
    assert marks(first) == ["a"]
    with pytest.raises(torchreel.errors.NotAReelError, match="open the reel again"):
        marks(second)
