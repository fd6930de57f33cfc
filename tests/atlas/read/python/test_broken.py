"""What tree-sitter reads where `ast` gives up is what `ast` would have read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.atlas.read.python.reading import STANDARD_LIBRARY, TORCH, files_of, read, symbols, title, used_in
from tests.sample import sampled
from torchreel.atlas.model import Import, Parsed
from torchreel.atlas.read.python import broken
from torchreel.atlas.read.python.broken import MOST_AT_ONCE, BrokenWalk
from torchreel.atlas.read.python.found import Found
from torchreel.atlas.read.python.source import parse
from torchreel.atlas.read.python.text import PythonText

NEWER = """\
    import os
    from typing import Protocol

    class Box[T: os.PathLike](Protocol):
        '''Holds it.'''
        content: T = None

        def map[S](self, change: S, *rest: T) -> S:
            '''Maps.'''
            self.changed = change(self.content)
            return os.path.join(rest, self.changed)

        def plain(self): return self.changed, self.map

    type Boxes[T] = list[Box[T]]

    def quoted(texts):
        return f"{texts["key"]} {os.sep}"
    """


def test_newer_syntax() -> None:
    assert symbols(NEWER) == [
        "4:6 class Box",
        "6:4 field Box.content",
        "8:8 method Box.map",
        "10:13 attribute Box.changed",
        "13:8 method Box.plain",
        "15:5 alias Boxes",
        "17:4 function quoted",
    ]
    parsed = read(NEWER)
    assert [symbol.signature for symbol in parsed.symbols] == [
        "class Box[T: os.PathLike](Protocol)",
        "content: T = None",
        "def map[S](self, change: S, *rest: T) -> S",
        "self.changed = change(self.content)",
        "def plain(self)",
        "type Boxes[T] = list[Box[T]]",
        "def quoted(texts)",
    ]
    assert [symbol.doc for symbol in parsed.symbols][:3] == ["Holds it.", "", "Maps."]
    assert parsed.imports == [Import(1, "os"), Import(2, "typing.Protocol")]
    assert parsed.errors == [4, 15, 18]


def test_names_in_newer_syntax() -> None:
    assert used_in(NEWER, 4) == ["os = os", "PathLike = os.PathLike", "Protocol = typing.Protocol"]
    assert used_in(NEWER, 8) == []
    assert used_in(NEWER, 10) == ["content -> 6"]
    assert used_in(NEWER, 11) == ["os = os", "path = os.path", "join = os.path.join", "changed -> 10"]
    assert used_in(NEWER, 13) == ["changed -> 10", "map -> 8"]
    assert used_in(NEWER, 15) == ["list", "Box -> 4"]
    assert used_in(NEWER, 18) == ["os = os", "sep = os.sep"]


@pytest.mark.parametrize(
    ("text", "found", "errors"),
    [
        ("def f(:\n    pass\ndef g(): ...\n", ["1:4 function f", "3:4 function g"], [1]),
        ("x = (1\ndef f(): ...\nclass A:\n    def g(self): ...\n",
         ["2:4 function f", "3:6 class A", "4:8 method A.g"], [1]),
        ("class A:\n    def f(self):\n        x = [1\n    def g(self): ...\n",
         ["1:6 class A", "2:8 method A.f", "4:8 method A.g"], [3]),
        ("print 'old'\nclass A: ...\n", ["2:6 class A"], [1]),
        ("class A(\n    def f(self): ...\nx = 1\n", ["1:6 class A", "2:8 function f", "3:0 variable x"], [1]),
        ("x = 1\n'''open\ndef f(): ...\n", ["1:0 variable x", "3:4 function f"], [2]),
    ],
)  # fmt: skip
def test_errors_cost_little(text: str, found: list[str], errors: list[int]) -> None:
    assert [symbol for symbol in symbols(text) if "self" not in symbol] == found
    assert read(text).errors == errors


MATCH = """\
    def f[T](subject):
        match subject:
            case shapes.Point(x=0, y=bound) | [bound, *rest]: bound, rest
            case {"key": value, **others} if value > point: others
            case shapes.ORIGIN as named: named
            case shapes.Point() as whole: whole
            case (one, 2) | point: one
        with a as b, c as (d, e): b, d, e
        try: ...
        except (E, F) as g: g
    """


def test_patterns() -> None:
    assert [used_in(MATCH, line) for line in range(2, 11)] == [
        [],
        ["shapes", "Point"],
        [],
        ["shapes", "ORIGIN"],
        ["shapes", "Point"],
        [],
        ["a", "c"],
        [],
        ["E", "F"],
    ]


FILES = [*files_of(TORCH, 25, seed=31), *files_of(STANDARD_LIBRARY, 25, seed=32)]


@pytest.mark.parametrize("path", sampled(FILES, 3, title), ids=title)
def test_both_walks_read_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text("utf-8", errors="replace")
    by_ast = parse(text)
    if by_ast.errors:
        pytest.skip("Python itself refuses this file")
    # All at once: parts would break what stands at the begin of lines in strings.
    monkeypatch.setattr(broken, "MOST_AT_ONCE", 1 << 30)
    monkeypatch.setattr("torchreel.atlas.read.python.source._found", by_tree_sitter)
    by_other = parse(text)
    assert names_of(by_other) == names_of(by_ast)
    assert by_other.imports == by_ast.imports
    assert meanings(by_other) == meanings(by_ast)
    assert by_other.looks == by_ast.looks


def by_tree_sitter(source: PythonText) -> Found:
    found = Found()
    BrokenWalk(source, found).read_all()
    found.settle()
    return found


def names_of(parsed: Parsed) -> list[tuple[str, str, str, int, int, int]]:
    return [(one.name, one.scope, one.kind, one.line, one.column, one.end_line) for one in parsed.symbols]


def meanings(parsed: Parsed) -> list[tuple[int, int, str, int, str]]:
    found = []
    for line, column, slot in zip(parsed.lines, parsed.columns, parsed.slots, strict=True):
        use = parsed.uses[slot]
        found.append((line, column, use.name, use.symbol, use.path))
    return found


def test_large_texts_are_read_in_parts() -> None:
    function = "def f{0}(a{0}):\n    return g(a{0}, f0)\n"
    text = "".join(function.format(number) for number in range(3000)) + "-" * 20_000 + "x"
    assert len(text) > 3 * MOST_AT_ONCE
    parsed = parse(text)
    assert [symbol.name for symbol in parsed.symbols] == [f"f{number}" for number in range(3000)]
    assert len(parsed.slots) == 2 * 3000 + 1
    assert parsed.symbols[-1].line == 5999


def test_a_large_statement_gives_its_definitions_only() -> None:
    text = "class A:\n" + "    def f(self): return self.x +\n" * 2000
    parsed = parse(text)
    assert [symbol.name for symbol in parsed.symbols] == ["A"] + ["f"] * 2000
    assert {symbol.scope for symbol in parsed.symbols[1:]} == {"A"}
    assert parsed.slots == []
    assert parsed.errors[0] == 1
