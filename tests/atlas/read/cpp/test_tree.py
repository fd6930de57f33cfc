"""The parser, and what keeps its time short."""

from __future__ import annotations

import pytest

from torchreel.atlas.read.cpp import tree


def test_outer_nodes_come_first() -> None:
    found, seen = tree.parse("namespace a { class B { int c; }; }")
    assert [what for _, _, _, what, _ in found] == ["namespace", "class", "declaration"]
    assert seen == 35


def test_errors_are_the_outermost_ones() -> None:
    found, _ = tree.parse("int a; ) ) int b;")
    assert [(start, -end) for start, end, _, what, _ in found if what == "error"] == [(7, 10)]


def test_a_parser_that_takes_too_long_is_told_that_the_text_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1_000))
    monkeypatch.setattr(tree.time, "thread_time", lambda: float(next(clock)))
    code = "int a;" * 10_000
    found, seen = tree.parse(code)
    assert 0 < seen < len(code)
    assert 0 < len(found) <= seen / len("int a;")
