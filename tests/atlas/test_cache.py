"""Files in the user's cache directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchreel.atlas import cache


def test_what_is_kept_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = cache.folder()
    assert folder == tmp_path / "cache" / "torchreel"
    assert cache.own(folder / "a") is None
    cache.keep(folder / "a", b"data")
    assert cache.own(folder / "a") == b"data"
    assert [path.name for path in folder.iterdir()] == ["a"]


def test_what_others_may_have_written_is_not(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"data")
    for mode in (0o666, 0o620):
        file.chmod(mode)
        assert cache.own(file) is None
    file.chmod(0o600)
    assert cache.own(file) == b"data"


def test_no_place_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache.keep(tmp_path / "file" / "a", b"data")
    cache.keep(None, b"data")
    assert cache.own(None) is None
