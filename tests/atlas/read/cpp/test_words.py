"""The words of C++ texts: where one ends is where the next can begin."""

from __future__ import annotations

import pytest

from torchreel.atlas.read.cpp.words import COMMENT, KEYWORD, NAME, NUMBER, PREPROCESSOR, STRING, Words

KINDS = {COMMENT: "comment", KEYWORD: "keyword", NAME: "name", NUMBER: "number", PREPROCESSOR: "#", STRING: "string"}


def words_of(text: str) -> list[tuple[str, str]]:
    words = Words(text)
    assert [text[start:end] for start, end in zip(words.starts, words.ends, strict=True)] == words.words
    return [(KINDS[kind], word) for kind, word in zip(words.kinds, words.words, strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int x = 1'000;", [("keyword", "int"), ("name", "x"), ("number", "1'000")]),
        ("a = 0x1Fu + .5e-3f + 1.", [("name", "a"), ("number", "0x1Fu"), ("number", ".5e-3f"), ("number", "1.")]),
        ("'\\'' 'a'", [("string", "'\\''"), ("string", "'a'")]),
        ('L"a\\"b" u8"c" U\'d\'', [("string", 'L"a\\"b"'), ("string", 'u8"c"'), ("string", "U'd'")]),
        ('R"(int x;)" y', [("string", 'R"(int x;)"'), ("name", "y")]),
        ('R"q(a)" b)q" y', [("string", 'R"q(a)" b)q"'), ("name", "y")]),
        ('// a "b\nc', [("comment", '// a "b'), ("name", "c")]),
        ("// a \\\n b\nc", [("comment", "// a \\\n b"), ("name", "c")]),
        ("/* a\n// */ c", [("comment", "/* a\n// */"), ("name", "c")]),
        ('"// no comment" c', [("string", '"// no comment"'), ("name", "c")]),
        ("  #  if X", [("#", "#  if"), ("name", "X")]),
        ("#include <a/b.h> // c", [("#", "#include"), ("string", "<a/b.h>"), ("comment", "// c")]),
        ('#include "a.h"', [("#", "#include"), ("string", '"a.h"')]),
        ("#pragma once\nint", [("#", "#pragma once"), ("keyword", "int")]),
        ("#error don't\nint", [("#", "#error don't"), ("keyword", "int")]),
        ("größe = 1", [("name", "größe"), ("number", "1")]),
        ('"open\nint', [("string", '"open'), ("keyword", "int")]),
        ("/* open\nint", [("comment", "/* open\nint")]),
        ('R"(open\nint', [("string", 'R"(open\nint')]),
        ("", []),
    ],
)
def test_words(text: str, expected: list[tuple[str, str]]) -> None:
    assert words_of(text) == expected


def test_a_parameter_as_a_string_is_no_directive() -> None:
    words = Words("#define F(define) #define\n")
    assert [words.words[index] for index in words.directives] == ["#define"]


def test_lines_and_places() -> None:
    words = Words("a\n\n b c\n")
    assert [words.line(start) for start in words.starts] == [1, 3, 3]
    assert [start - words.line_start(words.line(start)) for start in words.starts] == [0, 1, 3]
    assert [words.alone(index) for index in range(3)] == [True, True, False]
    assert words.at(1) == 1
