"""Tokens of Python files: those of Python's own tokenizer, with the meaning of names."""

from __future__ import annotations

import io
import keyword
import tokenize
from pathlib import Path

import pytest

from tests.atlas.read.python.reading import STANDARD_LIBRARY, TORCH, files_of, title, tokens
from tests.sample import sampled
from torchreel.atlas.model import COMMENT, DEFINITION, KEYWORD, NUMBER, STRING
from torchreel.atlas.read.python.source import parse

FILES = [*files_of(TORCH, 100, seed=21), *files_of(STANDARD_LIBRARY, 100, seed=22)]


def test_each_kind() -> None:
    assert tokens('def f(a):  # why\n    return g(a, 1.5e-3, "s") if a else None\n') == [
        ("def", KEYWORD),
        ("f", DEFINITION),
        ("# why", COMMENT),
        ("return", KEYWORD),
        ("g", 0),
        ("1.5e-3", NUMBER),
        ('"s"', STRING),
        ("if", KEYWORD),
        ("else", KEYWORD),
        ("None", KEYWORD),
    ]


@pytest.mark.parametrize(
    "number",
    ["0", "1_000", "0xFF_ff", "0b1_0", "0o17", "1.", ".5", "1.5", "1e5", "1E-5", "1.e+5j", ".5J", "1_0.0_1", "0xE"],
)
def test_numbers(number: str) -> None:
    assert tokens(f"({number}+1)") == [(number, NUMBER), ("1", NUMBER)]


@pytest.mark.parametrize(
    "string",
    [
        "''", '""', "'a\\'b'", '"a\\\\"', "'''a\n'b'' '''", '"""a\\""" """', 'r"\\d"', "Rb'x'", "bR'x'", "u'x'", 'f""',
        "'a\\\nb'", "'a\\\r\nb'", '"#"', "fR'''{{}}'''", '"é"',
    ],
)  # fmt: skip
def test_strings(string: str) -> None:
    assert tokens(f"({string})#c") == [(string, STRING), ("#c", COMMENT)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('x in"abc"', [("x", 0), ("in", KEYWORD), ('"abc"', STRING)]),
        ("1if x else 2", [("1", NUMBER), ("if", KEYWORD), ("x", 0), ("else", KEYWORD), ("2", NUMBER)]),
        ("x[1:-1].real", [("x", 1), ("1", NUMBER), ("1", NUMBER), ("real", 0)]),
        ("1 .real", [("1", NUMBER), ("real", 0)]),
        ("rb.x", [("rb", 1), ("x", 0)]),
        ("match = case = 1", [("match", DEFINITION), ("case", DEFINITION), ("1", NUMBER)]),
        ("match x:\n case (1): y", [("match", KEYWORD), ("x", 0), ("case", KEYWORD), ("1", NUMBER), ("y", 1)]),
        ('f"{b}{c.d}"', [('f"{', STRING), ("b", 0), ("}{", STRING), ("c", 2), (".", STRING), ("d", 1), ('}"', STRING)]),
        ("'abc", [("'abc", STRING)]),
        ("'''abc\ndef", [("'''abc\ndef", STRING)]),
        ("'''abc\\", [("'''abc\\", STRING)]),
        ("x = 'abc\ny = 1", [("x", DEFINITION), ("'abc", STRING), ("y", DEFINITION), ("1", NUMBER)]),
    ],
)  # fmt: skip
def test_hard_spots(text: str, found: list[tuple[str, int]]) -> None:
    assert tokens(text) == found


@pytest.mark.parametrize("path", sampled(FILES, 3, title), ids=title)
def test_tokens_are_those_of_tokenize(path: Path) -> None:
    try:
        with tokenize.open(path) as file:
            text = file.read()
        wanted = standard_tokens(text)
    except (SyntaxError, tokenize.TokenError):
        pytest.skip("Python itself refuses this file")
    parsed = parse(text)
    strings = {start: end for start, end, kind in wanted if kind == STRING}
    whole: list[tuple[int, int, int]] = []
    inside = 0
    for start, end, kind in parsed.tokens:
        assert start >= (whole[-1][1] if whole and start >= inside else 0)
        if start < inside:  # a string that names divide
            assert end <= inside and (kind == STRING or kind >= 0)
        elif kind == STRING:
            inside = strings.get(start, end)
            whole.append((start, inside, STRING))
        elif kind >= 0 or kind == DEFINITION:
            assert text[start:end].isidentifier()
        elif text[start:end] not in ("match", "case"):
            whole.append((start, end, kind))
    assert whole == wanted


def standard_tokens(text: str) -> list[tuple[int, int, int]]:
    kinds = {tokenize.COMMENT: COMMENT, tokenize.STRING: STRING, tokenize.NUMBER: NUMBER}
    begins = [0]
    for line in text.split("\n"):
        begins.append(begins[-1] + len(line) + 1)
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = kinds.get(token.type, KEYWORD if keyword.iskeyword(token.string) else None)
        if kind is not None:
            (line, column), (last, end) = token.start, token.end
            found.append((begins[line - 1] + column, begins[last - 1] + end, kind))
    return found


def test_places_of_uses_are_those_of_their_tokens() -> None:
    text = (TORCH / "nn" / "functional.py").read_text()
    parsed = parse(text)
    lines = text.split("\n")
    named = [text[start:end] for start, end, kind in parsed.tokens if kind >= 0]
    assert named == [parsed.uses[slot].name for slot in parsed.slots]
    assert all(
        lines[line - 1].startswith(name, column)
        for line, column, name in zip(parsed.lines, parsed.columns, named, strict=True)
    )
    assert len(named) > 2_500
