"""Files of source: only regular ones are read, nothing waits, and every text is valid."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from torchreel.reel import source_files
from torchreel.reel.source_files import content_of, digest_of, text_of


def test_a_regular_file(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(b"x = 1\r\n\xff\0")
    (tmp_path / "link.py").symlink_to(file)
    assert content_of(str(file)) == content_of(str(tmp_path / "link.py")) == b"x = 1\r\n\xff\0"
    assert digest_of(b"x = 1\r\n\xff\0") == hashlib.sha256(file.read_bytes()).hexdigest()


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.py")  # to open it would wait for a writer
    (tmp_path / "directory.py").mkdir()
    (tmp_path / "nowhere.py").symlink_to(tmp_path / "missing")
    (tmp_path / "circle.py").symlink_to(tmp_path / "circle.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    monkeypatch.setattr(source_files.os, "open", lambda *_: pytest.fail("it was opened"))
    names = ("pipe.py", "directory.py", "nowhere.py", "circle.py", "zero.py", "missing.py")
    for file in (*(str(tmp_path / name) for name in names), "/dev/tty", "/dev/zero", "<string>", ""):
        assert content_of(file) is None
    assert content_of("/tmp/a\0b.py") is None
    assert content_of("/tmp/\ud800.py") is None
    assert content_of("/" + "x" * 5000) is None


def test_a_relative_path_may_mean_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    assert content_of("train.py") is None and content_of("./train.py") is None


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "secret.py").write_text("x = 1\n")
    monkeypatch.setattr(source_files.os, "open", refuse)
    assert content_of(str(tmp_path / "secret.py")) is None


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MOST_BYTES", 10)
    (tmp_path / "ten.py").write_bytes(b"x" * 10)
    (tmp_path / "eleven.py").write_bytes(b"x" * 11)
    assert content_of(str(tmp_path / "ten.py")) == b"x" * 10
    assert content_of(str(tmp_path / "eleven.py")) is None


def test_a_file_that_says_another_size_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of /proc have size 0, however long they are."""
    whole = content_of("/proc/self/maps")
    assert whole is not None and len(whole) > 100
    monkeypatch.setattr(source_files, "MOST_BYTES", 100)
    assert content_of("/proc/self/maps") is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        ("naïve = 'é'\n".encode(), "naïve = 'é'\n"),
        ("﻿x = 1\n".encode(), "x = 1\n"),
        ("# -*- coding: latin-1 -*-\né\n".encode("latin-1"), "# -*- coding: latin-1 -*-\né\n"),
        ("#!/usr/bin/python\n# coding=cp1252\n€\n".encode("cp1252"), "#!/usr/bin/python\n# coding=cp1252\n€\n"),
        ("# coding: shift_jis\nあ\n".encode("shift_jis"), "# coding: shift_jis\nあ\n"),
        # What is not in the encoding that it names, or in none that sources have.
        (b"# coding: ascii\n\xc3\xa9\xff\n", "# coding: ascii\né\\xff\n"),
        (b"a\xffb\0c", "a\\xffb\\x00c"),
        (b"# coding: no-such-thing\n\xc3\xa9", "# coding: no-such-thing\né"),
        (b"# coding: punycode\nabc-xyz\n", "# coding: punycode\nabc-xyz\n"),
        (b"# coding: rot13\nabc\n", "# coding: rot13\nabc\n"),
        (b"# coding: unicode_escape\n\\u0041\n", "# coding: unicode_escape\n\\u0041\n"),
        (b"# coding: utf-16\nab", "# coding: utf-16\nab"),
        # Lines end as they did.
        (b"a\r\nb\rc\n", "a\r\nb\rc\n"),
    ],
)
def test_text_is_as_python_reads_it_and_always_valid(data: bytes, text: str) -> None:
    assert text_of(data) == text
    assert "\0" not in text_of(data) and text_of(data).encode().decode() == text
