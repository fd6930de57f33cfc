"""Truncated, huge, malicious and foreign files: a sentence and exit code 1, in little memory, and nothing executed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome, torchreel  # noqa: F401
from tests.ingest.snapshot.hostile import HOSTILE
from tests.ingest.snapshot.small import small_snapshot
from torchreel.errors import SnapshotError, TruncatedSnapshotError
from torchreel.ingest import open_source, read_snapshot

# What each file may take beyond what Python and the libraries take when nothing has been read.
LIMITED = """
import resource, sys
from pathlib import Path
import msgspec, numpy, pyarrow.parquet
from torchreel.cli.main import main
import torchreel.ingest, torchreel._decode, torchreel.cli.record
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (int(sys.argv[2]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
sys.exit(main(["import", sys.argv[1], "-o", "run.reel"]))
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_sentence_and_exit_code_1(
    name: str,
    torchreel: Callable[..., Outcome],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    data, expected = HOSTILE[name]
    Path("file.pickle").write_bytes(data)
    outcome = torchreel("import", "file.pickle", "-o", "run.reel")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("Error: file.pickle ")
    assert outcome.err.count("\n") == 1
    assert expected in outcome.err
    assert len(outcome.err) < 500
    assert [path.name for path in tmp_path.iterdir()] == ["file.pickle"]


HUNGRY = ["nested lists", "a billion laughs", "settings without end", "long forward frames", "long settings",
          "long texts", "a text of 4 GiB", "bytes of 2^63", "a huge memo index", "a million numbers",
          "JSON nested deep"]  # fmt: skip


@pytest.mark.parametrize("name", HUNGRY)
def test_memory_is_bounded(name: str, tmp_path: Path) -> None:
    data, expected = HOSTILE[name]
    (tmp_path / "file").write_bytes(data)
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, "file", "600"],
        **{"capture_output": True, "text": True, "check": False, "cwd": tmp_path},
    )
    assert result.returncode == 1, result.stderr
    assert expected in result.stderr
    assert "memory for this" not in result.stderr


def test_too_little_memory_is_a_sentence_too(tmp_path: Path) -> None:
    data = pickle.dumps({"segments": [{"x": "y" * (60 << 20)}]})
    (tmp_path / "file").write_bytes(data)
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, "file", "100"],
        **{"capture_output": True, "text": True, "check": False, "cwd": tmp_path},
    )
    expected = "Error: There is too little memory for this: free some, or ask for less.\n"
    assert (result.returncode, result.stderr) == (1, expected)


def test_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for protocol in (2, 4):
        data = pickle.dumps(small_snapshot(), protocol)
        for length in [*range(2, len(data), 7), len(data) - 1]:
            path.write_bytes(data[:length])
            with pytest.raises(TruncatedSnapshotError, match=r"file is not complete: .*\. Please copy it again"):
                read_snapshot(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, sentence in [
        (tmp_path, "is a directory, not a memory snapshot: name the file."),
        (tmp_path / "pipe", "is not a regular file: copy what it gives to a file first."),
        (tmp_path / "none", "There is no memory snapshot at"),
        (tmp_path / "pipe" / "x", "There is no memory snapshot at"),
        (Path("/dev/zero"), "is not a regular file"),
        (Path("a\0b"), "There is no memory snapshot at"),
    ]:
        with pytest.raises(SnapshotError) as error:
            read_snapshot(path)
        assert sentence in str(error.value)


def test_a_snapshot_is_opened_like_a_reel(tmp_path: Path) -> None:
    (tmp_path / "snap.pickle").write_bytes(pickle.dumps(small_snapshot()))
    with open_source(tmp_path / "snap.pickle") as reel:
        assert reel.allocs.num_rows == 10
        assert reel.sql("SELECT count(*) AS n FROM blocks").to_pylist() == [{"n": 4}]
        path = reel.path
    assert not path.exists()
    with pytest.raises(ZeroDivisionError), open_source(tmp_path / "snap.pickle") as reel:
        path = reel.path
        raise ZeroDivisionError
    assert not path.exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["snap.pickle"]
