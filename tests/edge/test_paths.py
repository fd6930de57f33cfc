"""Where the trace and the reel go, and what becomes of what is there."""

from __future__ import annotations

import gc
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.edge.nets import Net, batch, calls
from torchreel import EdgeProfiler
from torchreel.errors import EdgeError, OptionError


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory, empty, for this test alone."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def profile(path: Any, count: int = 1) -> EdgeProfiler:
    net = Net()
    with EdgeProfiler(net, path) as profiler:
        for _ in range(count):
            net(batch())
    return profiler


def held(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def names(trace: bytes) -> list[str]:
    return [event["name"] for event in json.loads(trace)["traceEvents"]]


def test_a_trace_and_the_reel_beside_it(tmp_path: Path) -> None:
    profiler = profile(str(tmp_path / "run.json"))
    assert held(tmp_path) == ["run.json", "run.reel"]
    assert names((tmp_path / "run.json").read_bytes()).count("aten::linear") == 2
    assert len(calls(torchreel.load(tmp_path / "run.reel"))) == 1
    assert len(calls(profiler.result())) == 1


def test_a_compressed_trace(tmp_path: Path) -> None:
    profile(tmp_path / "run.json.gz")
    assert held(tmp_path) == ["run.json.gz", "run.reel"]
    assert "aten::linear" in names(gzip.decompress((tmp_path / "run.json.gz").read_bytes()))


def test_a_reel_alone(tmp_path: Path) -> None:
    profile(tmp_path / "run.reel")
    assert held(tmp_path) == ["run.reel"]
    assert len(calls(torchreel.load(tmp_path / "run.reel"))) == 1


def test_a_name_without_a_suffix(tmp_path: Path) -> None:
    profile(tmp_path / "run")
    assert held(tmp_path) == ["run", "run.reel"]


def test_a_path_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    profile("run.json")
    assert held(tmp_path) == ["run.json", "run.reel"]


def test_without_a_path_the_reel_lasts_as_long_as_somebody_has_it(temporary: Path) -> None:
    reel = profile("").result()
    gc.collect()
    assert len(calls(reel)) == 1
    assert len(held(temporary)) == 1
    del reel
    gc.collect()
    assert held(temporary) == []


@pytest.mark.parametrize("path", ["", "run.json"])
def test_nothing_is_left_in_the_temporary_directory(temporary: Path, tmp_path: Path, path: str) -> None:
    profiler = profile(tmp_path / path if path else "")
    assert len(held(temporary)) == (0 if path else 1)
    del profiler
    EdgeProfiler(Net(), "")  # never entered
    gc.collect()
    assert held(temporary) == []


def test_nothing_is_left_by_one_that_is_refused(temporary: Path) -> None:
    net = Net()
    with EdgeProfiler(net):
        net(batch())
        present = held(temporary)
        for _ in range(3):
            with pytest.raises(EdgeError):
                EdgeProfiler(net)
        gc.collect()
        assert held(temporary) == present
    with pytest.raises(EdgeError):
        EdgeProfiler(3)
    with pytest.raises(OptionError):
        EdgeProfiler(net, events=["nonsense"])
    gc.collect()
    assert held(temporary) == []


def test_nothing_is_left_after_an_error(temporary: Path) -> None:
    with pytest.raises(ZeroDivisionError), EdgeProfiler(Net()) as profiler:
        profiler.module(batch())
        raise ZeroDivisionError
    del profiler
    gc.collect()
    assert held(temporary) == []


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot be written because there is no directory .*missing: make it first"):
        EdgeProfiler(Net(), tmp_path / "missing" / "run.json")
    assert held(tmp_path) == []


def test_a_directory_for_a_trace(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is a directory: name the file for the trace in it"):
        EdgeProfiler(Net(), tmp_path)


@pytest.mark.parametrize("path", [None, 3, b"run.json", "run\0.json", ["run.json"]])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(OptionError, match=r"trace_path=.* is no path"):
        EdgeProfiler(Net(), path)


def test_an_older_profile_is_replaced(tmp_path: Path) -> None:
    profile(tmp_path / "run.json", count=1)
    profile(tmp_path / "run.json", count=3)
    assert len(calls(torchreel.load(tmp_path / "run.reel"))) == 3
    assert names((tmp_path / "run.json").read_bytes()).count("aten::linear") == 6


def test_an_older_profile_stays_until_the_new_one_ends(tmp_path: Path) -> None:
    profile(tmp_path / "run.json", count=1)
    net = Net()
    with EdgeProfiler(net, tmp_path / "run.json"):
        net(batch())
        assert len(calls(torchreel.load(tmp_path / "run.reel"))) == 1
        net(batch())
    assert len(calls(torchreel.load(tmp_path / "run.reel"))) == 2


def test_a_foreign_reel_is_not_replaced(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "run.reel"):
        Net()(batch())
    before = torchreel.load(tmp_path / "run.reel").ops.num_rows
    for path in ("run.json", "run.reel"):
        with pytest.raises(OptionError, match="was not made by an edge profiler, so it is not replaced"):
            EdgeProfiler(Net(), tmp_path / path)
    assert torchreel.load(tmp_path / "run.reel").ops.num_rows == before


def test_what_is_no_reel_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file.reel").write_text("mine")
    (tmp_path / "directory.reel").mkdir()
    (tmp_path / "directory.reel" / "notes.txt").write_text("mine")
    for path in ("file.reel", "directory.reel", "file.json", "directory.json"):
        with pytest.raises(OptionError, match="is not replaced"):
            EdgeProfiler(Net(), tmp_path / path)
    assert (tmp_path / "file.reel").read_text() == "mine"
    assert held(tmp_path / "directory.reel") == ["notes.txt"]


def test_a_link_to_a_profile_is_replaced_and_not_followed(tmp_path: Path) -> None:
    profile(tmp_path / "real.reel", count=1)
    (tmp_path / "link.reel").symlink_to(tmp_path / "real.reel")
    profile(tmp_path / "link.reel", count=2)
    assert len(calls(torchreel.load(tmp_path / "real.reel"))) == 1
    assert len(calls(torchreel.load(tmp_path / "link.reel"))) == 2


def test_the_directory_vanishes_meanwhile(tmp_path: Path) -> None:
    net = Net()
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "elsewhere").write_text("")
    with pytest.raises(EdgeError, match="The profile cannot be written to"), EdgeProfiler(net, home / "run.json"):
        net(batch())
        home.rmdir()
        home.symlink_to(tmp_path / "elsewhere")


def test_the_programs_own_error_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net()
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "elsewhere").write_text("")
    with pytest.raises(ZeroDivisionError), EdgeProfiler(net, home / "run.json"):
        net(batch())
        home.rmdir()
        home.symlink_to(tmp_path / "elsewhere")
        raise ZeroDivisionError
    assert "torchreel: The profile cannot be written to" in capsys.readouterr().err


def test_meta_says_what_was_profiled(tmp_path: Path) -> None:
    profile(tmp_path / "run.reel")
    meta = json.loads((tmp_path / "run.reel" / "meta.json").read_text())
    assert meta["edge"] == {"model": "Net", "format": "nn.Module", "remark": None}
    assert meta["state"] == "closed"
