"""Offsets of bytes, lines and characters of a Python source."""

from __future__ import annotations

import numpy as np
import pytest

from torchreel.atlas.read.python.text import PythonText


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("", [0, 0]),
        ("a", [0, 0]),
        ("a\n", [0, 0, 2]),
        ("a\r\nb\rc\n\r\n\r", [0, 0, 3, 5, 7, 9, 10]),
        ("a\fb\vc\x1cd\u2028e\x85f", [0, 0]),
        ("é\n😀\nx", [0, 0, 3, 8]),
    ],
)
def test_lines_begin_behind_line_ends_only(text: str, begins: list[int]) -> None:
    assert PythonText(text).begins == begins


def test_offsets_are_of_bytes_and_become_characters() -> None:
    source = PythonText("é = 1\nx = '😀'; y\n")
    at = np.array([source.view.index(one) for one in ("=", "x", "y")])
    assert at.tolist() == [3, 7, 19]
    assert source.characters(at).tolist() == [2, 6, 15]
    assert source.lines_and_columns(at) == ([1, 2, 2], [2, 0, 9])
    assert source.piece(7, 18) == "x = '😀';"
    assert [source.line_at(offset) for offset in (0, 6, 7, 19)] == [1, 1, 2, 2]


def test_a_text_in_ascii_is_its_own_view() -> None:
    text = "x = 1\n"
    source = PythonText(text)
    assert source.view is text
    offsets = np.array([0, 4])
    assert source.characters(offsets) is offsets


def test_what_no_source_can_have_keeps_its_place() -> None:
    source = PythonText("\ufeffa\0b\nc\ud800d\n")
    assert source.text == "\fa b\nc?d\n"
    assert source.unreadable == [1, 2]
