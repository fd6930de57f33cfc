"""Whether files are as they were when they were recorded."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.synthetic import Process, call, write_reel
from torchreel.analyze import source_states
from torchreel.analyze.source import states
from torchreel.analyze.source.states import state_of


def source(path: Path | str, content: bytes) -> dict[str, Any]:
    return {"path": str(path), "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_same_changed_and_missing(tmp_path: Path) -> None:
    for name in ("same.py", "changed.py", "shorter.py"):
        (tmp_path / name).write_bytes(b"x = 1\n")
    os.mkfifo(tmp_path / "pipe.py")
    first = [
        source(tmp_path / "same.py", b"x = 1\n"),
        source(tmp_path / "changed.py", b"x = 2\n"),
        source(tmp_path / "shorter.py", b"x = 1\n\n"),
        source(tmp_path / "missing.py", b"x = 1\n"),
        source(tmp_path / "pipe.py", b""),
        source("same.py", b"x = 1\n"),
        {"path": str(tmp_path / "same.py"), "bytes": None, "sha256": None},
    ]
    second = [source(tmp_path / "same.py", b"another machine's\n")]
    calls = [call("aten::mm", 5)]
    write_reel(
        tmp_path / "a.reel",
        Process({"main": calls}, sources=first),
        Process({"main": calls}, name="host-2", sources=second),
    )
    found = source_states(torchreel.load(tmp_path / "a.reel"))
    assert found.column_names == ["process", "path", "bytes", "sha256", "state"]
    wanted = ["same", "changed", "changed", "missing", "missing", "missing"]
    assert found.to_pylist() == [
        *({"process": 0, **row, "state": state} for row, state in zip(first[:-1], wanted, strict=True)),
        {"process": 1, **second[0], "state": "changed"},
    ]


def test_a_file_of_many_processes_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_bytes(b"x = 1\n")
    read = []
    monkeypatch.setattr(states, "content_of", lambda file: (read.append(file), Path(file).read_bytes())[1])
    processes = [
        Process({"main": [call("aten::mm", 5)]}, name=f"host-{n}", sources=[source(tmp_path / "a.py", b"x = 1\n")])
        for n in range(5)
    ]
    found = source_states(torchreel.load(write_reel(tmp_path / "a.reel", *processes)))
    assert found["state"].to_pylist() == ["same"] * 5
    assert read == [str(tmp_path / "a.py")]


def test_without_hashes_nothing_is_said(tmp_path: Path) -> None:
    path = write_reel(tmp_path / "a.reel", Process({"main": [call("aten::mm", 5, stack=((__file__, 1, "f"),))]}))
    found = source_states(torchreel.load(path))
    assert (found.num_rows, found.column_names) == (0, ["process", "path", "bytes", "sha256", "state"])


def test_one_file() -> None:
    sha256 = hashlib.sha256(b"abc").hexdigest()
    assert [state_of(data, sha256) for data in (b"abc", b"abd", b"", None)] == ["same", "changed", "changed", "missing"]
