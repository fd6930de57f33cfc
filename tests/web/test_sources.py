"""Which source a page is shown: the recorded one, or the disk's if it is the same, and nothing else of the disk."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.synthetic import Process, call, write_reel
from torchreel.errors import OptionError
from torchreel.web.answers import Answers
from torchreel.web.sources import source_of_file

NOW = "x = 1\n"


def row(path: Path, content: str, text: str | None) -> dict[str, Any]:
    data = content.encode()
    return {"path": str(path), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "text": text}


def reel_of(directory: Path, *sources: list[dict[str, Any]], named: list[Path]) -> torchreel.Reel:
    """A process for each list of sources; all of them name the files, in frames 0, 1 ..."""
    calls = [call("aten::mm", 5, stack=((str(path), 7, "run"),)) for path in named]
    processes = [Process({"main": calls}, name=f"host-{n}", sources=rows) for n, rows in enumerate(sources)]
    return torchreel.load(write_reel(directory / "run.reel", *processes))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(NOW)
    return tmp_path / "train.py"


# What was recorded, whether its text was kept, what is on disk now; the text shown, its origin, the state, and why.
CASES = {
    "recorded, the same": (NOW, True, NOW, NOW, "recording", "same", None),
    "recorded, changed": (
        *("x = 0\n", True, NOW),
        *("x = 0\n", "recording", "changed", "changed since the recording: this is the text that was recorded"),
    ),
    "recorded, missing": (
        *("x = 0\n", True, None),
        *("x = 0\n", "recording", "missing", "not on this machine: this is the text that was recorded"),
    ),
    "hashed, the same": (NOW, False, NOW, NOW, "disk", "same", None),
    "hashed, changed": (
        *("x = 0\n", False, NOW),
        *(None, None, "changed", "changed since the recording: line numbers only"),
    ),
    "hashed, missing": ("x = 0\n", False, None, None, None, "missing", "not on this machine: line numbers only"),
    "unknown": (
        *(None, False, NOW),
        *(NOW, "disk", None, "as it is on this machine now: the recording has no hash to compare it with"),
    ),
    "unknown, missing": (None, False, None, None, None, None, "not on this machine: line numbers only"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_shown(file: Path, case: str) -> None:
    then, kept, now, text, origin, state, why = CASES[case]
    recorded = [] if then is None else [row(file, then, then if kept else None)]
    reel = reel_of(file.parent, recorded, named=[file])
    if now is None:
        file.unlink()
    known = recorded[0] if recorded else {}
    assert source_of_file(reel, str(file)) == {
        "file": str(file),
        "process": 0 if recorded else None,
        "bytes": known.get("bytes"),
        "sha256": known.get("sha256"),
        "text": text,
        "origin": origin,
        "state": state,
        "why": why,
    }


def test_by_frame(file: Path) -> None:
    other = file.with_name("other.py")
    other.write_text("y = 2\n")
    second = [row(file, "x = 9\n", "x = 9\n"), row(other, "y = 2\n", None)]
    reel = reel_of(file.parent, [row(file, NOW, NOW)], second, named=[file, other])
    answers = Answers(reel)
    first = answers.answer("GET", "source/0", {}, b"")
    assert first == {**source_of_file(reel, str(file), 0), "frame": 0, "line": 7, "function": "run"}
    assert (first["text"], first["state"], first["process"]) == (NOW, "same", 0)
    assert answers.answer("GET", "source/0/0", {}, b"") == first
    other_process = answers.answer("GET", "source/1/0", {}, b"")
    assert (other_process["text"], other_process["state"], other_process["process"]) == ("x = 9\n", "changed", 1)
    third = answers.answer("GET", "source/1/1", {}, b"")
    assert (third["file"], third["text"], third["origin"]) == (str(other), "y = 2\n", "disk")
    # Process 0 has no hash of that one, whatever the other has.
    assert answers.answer("GET", "source/1", {}, b"")["state"] is None
    for path in ("source/7", "source/2/0", "source/0/999999999999999999"):
        with pytest.raises(OptionError, match="There is no frame"):
            answers.answer("GET", path, {}, b"")
    for path in ("source/", "source/a", "source/-1", "source/0/0/0", "source/0/../0", f"source/{file}"):
        with pytest.raises(KeyError):
            answers.answer("GET", path, {}, b"")


def test_versions_of_several_processes_are_told_apart(file: Path) -> None:
    reel = reel_of(file.parent, [row(file, "x = 0\n", None)], [row(file, NOW, NOW)], named=[file])
    found = source_of_file(reel, str(file))
    assert (found["process"], found["text"], found["state"]) == (1, NOW, "same")
    assert found["why"] == "processes ran different versions of this file: here is that of process 1"
    found = source_of_file(reel, str(file), 0)
    assert (found["process"], found["text"]) == (0, None)
    assert found["why"] == "changed since the recording: line numbers only"
    assert Answers(reel).answer("GET", "source", {"file": str(file), "process": "0"}, b"") == found


def test_only_files_that_frames_name(file: Path) -> None:
    """Also not those of `sources` alone, nor by another spelling."""
    secret = file.with_name("secret.py")
    secret.write_text("key = 1\n")
    reel = reel_of(file.parent, [row(secret, "key = 1\n", "key = 1\n")], named=[file])
    for name in (str(secret), f"{file.parent}/./{file.name}", f"{file.parent}/../{file.parent.name}/{file.name}", ""):
        with pytest.raises(OptionError, match="No frame of this reel is in that file"):
            source_of_file(reel, name)
    with pytest.raises(OptionError, match="No frame"):
        source_of_file(reel, str(file), 1)


def test_only_regular_python_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link.py").symlink_to(tmp_path / "secret")
    (tmp_path / "circle.py").symlink_to(tmp_path / "circle.py")
    (tmp_path / "directory.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "large.py").write_bytes(b"#" * ((2 << 20) + 1))
    (tmp_path / "train.py").write_text(NOW)
    monkeypatch.chdir(tmp_path)
    names = ["secret", "link.py", "circle.py", "directory.py", "pipe.py", "large.py"]
    named = [
        *(tmp_path / name for name in names),
        Path("/dev/zero"),
        Path("/etc/passwd"),
        Path("train.py"),
        Path("<b>.py"),
    ]
    reel = reel_of(tmp_path, [], named=named)
    for path in named:
        found = source_of_file(reel, str(path))
        assert found["text"] is None and found["why"].endswith(": line numbers only")


def test_a_recorded_text_must_be_pythons_and_short(tmp_path: Path) -> None:
    """A reel may have been made by anyone."""
    text, large = tmp_path / "notes.txt", tmp_path / "large.py"
    rows = [row(text, "x", "x"), row(large, "x", "#" * ((2 << 20) + 1))]
    reel = reel_of(tmp_path, rows, named=[text, large])
    assert source_of_file(reel, str(text))["text"] is None
    assert source_of_file(reel, str(large))["text"] is None
