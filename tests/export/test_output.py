from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from torchreel.errors import OptionError, TorchreelError
from torchreel.export.output import replacing


def test_the_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(b"old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_gz_is_compressed_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        with replacing(tmp_path / name) as file:
            file.write(b"text" * 100)
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == b"text" * 100
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is a directory: name the file"), replacing(tmp_path):
        pass
    with pytest.raises(OptionError, match=r"there is no directory .*missing"), replacing(tmp_path / "missing" / "a"):
        pass
    with pytest.raises(TorchreelError, match="could not be written"), replacing(tmp_path / ("x" * 300)):
        pass
