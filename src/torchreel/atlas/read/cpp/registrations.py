"""What a C++ text registers: operators, kernels of operators, and stubs."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

from torchreel.atlas.model import Registration
from torchreel.atlas.read.cpp.directives import Directives
from torchreel.atlas.read.cpp.words import COMMENT, STRING, Words

_WORDS_TEXT = """
    TORCH_LIBRARY TORCH_LIBRARY_IMPL TORCH_LIBRARY_FRAGMENT TORCH_IMPL_FUNC TORCH_META_FUNC TORCH_META_FUNC2
    TORCH_PRECOMPUTE_META_FUNC TORCH_PRECOMPUTE_META_FUNC2 Library
"""
_WORDS = frozenset(_WORDS_TEXT.split())
_MACRO = re.compile(
    r"""\b(?: TORCH_LIBRARY(?:_IMPL|_FRAGMENT)? | TORCH_IMPL_FUNC | TORCH_(?:PRECOMPUTE_)?META_FUNC2?
    | DEFINE_DISPATCH | DECLARE_DISPATCH | (?:ALSO_)?REGISTER_(?:\w+_)?DISPATCH ) \s*(?=\()""",
    re.VERBOSE,
)
_METHOD = re.compile(r"\b(\w+)\s*\.\s*(def|impl)\s*(?=\()")
_LIBRARY_PARAMETER = re.compile(r"\bLibrary\s*&\s*(\w+)\s*[,)][^;{]{0,1000}(?=\{)")
_BLOCK = re.compile(r"\)\s*(?=\{)")
_DISPATCH_KEY = re.compile(r"(?:ALSO_)?REGISTER_(?:(?:ALL|NO)_)?(\w+?)_DISPATCH")
_KEY_IN_CALL = re.compile(r"\bDispatchKey::(\w+)|\bdispatch\s*\(\s*(?:\w+::)*k(\w+)")
_OPERATOR = re.compile(r"\s*((?:\w+::)*[\w.]+)")
_LITERAL = re.compile(r'(?:u8|[uUL])?(?:R"([^()\\\s]{0,16})\((.*)\)\1"|"(.*)")', re.DOTALL)
_BRACKETS = re.compile(r"[(){}]")


class _Block(NamedTuple):
    """Where a library has a name, and what it is a library of."""

    start: int
    end: int
    variable: str
    namespace: str
    key: str


def registrations(words: Words, directives: Directives) -> list[Registration]:
    """The registrations of a text, in the order of its lines."""
    if words.kind_of.keys().isdisjoint(_WORDS) and "_DISPATCH" not in words.text:
        return []
    return _Reader(words, directives).read()


class _Reader:
    def __init__(self, words: Words, directives: Directives) -> None:
        self._words = words
        self._code = self._without_literals(directives)
        self._closing = self._pairs()
        self._blocks: list[_Block] = []
        self._found: list[tuple[int, Registration]] = []

    def read(self) -> list[Registration]:
        for match in _MACRO.finditer(self._code):
            self._macro(match)
        for match in _LIBRARY_PARAMETER.finditer(self._code):
            self._blocks.append(_Block(match.end(), self._closing.get(match.end(), match.end()), match[1], "", ""))
        self._blocks.sort()
        for match in _METHOD.finditer(self._code) if self._blocks else ():
            self._method(match)
        self._found.sort(key=lambda row: row[0])
        return [registration for _, registration in self._found]

    def _without_literals(self, directives: Directives) -> str:
        """The text with blanks for comments, literals and the lines of the preprocessor."""
        words = self._words
        pieces = [""] * (2 * len(words.words) + 1)
        pieces[0::2] = words.gaps
        pieces[1::2] = [
            " " * len(word) if kind in (COMMENT, STRING) else word
            for word, kind in zip(words.words, words.kinds, strict=True)
        ]
        code = "".join(pieces)
        parts: list[str] = []
        done = 0
        for start, end in directives.spans:
            start = max(start, done)
            parts += (code[done:start], " " * (end - start))
            done = max(end, done)
        return "".join((*parts, code[done:]))

    def _pairs(self) -> dict[int, int]:
        """Where each bracket closes."""
        closing: dict[int, int] = {}
        opened: list[int] = []
        for match in _BRACKETS.finditer(self._code):
            if match[0] in "({":
                opened.append(match.start())
            elif opened:
                closing[opened.pop()] = match.start()
        return closing

    def _add(self, place: int, what: str, name: str, key: str = "") -> None:
        self._found.append((place, Registration(self._words.line(place), what, name, key)))

    def _macro(self, match: re.Match[str]) -> None:
        opening = match.end()
        closing = self._closing.get(opening)
        if closing is None:
            return
        what = match[0].rstrip()
        arguments = [argument.strip() for argument in self._code[opening + 1 : closing].split(",")]
        if what.startswith("TORCH_LIBRARY"):
            self._library(match.start(), what, arguments, closing)
        elif what.endswith("FUNC2"):
            self._add(match.start(), what, ".".join(arguments[:2]))
        elif what == "DECLARE_DISPATCH":
            self._add(match.start(), what, arguments[-1])
        else:
            key = _DISPATCH_KEY.fullmatch(what)
            named = arguments[1] if what == "REGISTER_ARCH_DISPATCH" and len(arguments) > 1 else key[1] if key else ""
            self._add(match.start(), what, arguments[0], named)

    def _library(self, place: int, what: str, arguments: list[str], closing: int) -> None:
        key = arguments[1] if what == "TORCH_LIBRARY_IMPL" and len(arguments) > 2 else ""
        self._add(place, what, arguments[0], key)
        block = _BLOCK.match(self._code, closing)
        if block:
            end = self._closing.get(block.end(), len(self._code))
            self._blocks.append(_Block(block.end(), end, arguments[-1], arguments[0], key))

    def _method(self, match: re.Match[str]) -> None:
        around = self._blocks[max(bisect_right(self._blocks, (match.start(),)) - 8, 0) :]
        blocks = [row for row in around if row.start < match.start() < row.end and row.variable == match[1]]
        closing = self._closing.get(match.end())
        if not blocks or closing is None:
            return
        name = _OPERATOR.match(self._first_literal(match.end(), closing))
        if name is None:
            return
        namespace, key = blocks[-1].namespace, blocks[-1].key
        if not key and match[2] == "impl":
            named = _KEY_IN_CALL.search(self._code, match.end(), closing)
            key = (named[1] or named[2]) if named else ""
        qualified = "::" in name[1] or namespace in ("", "_")
        self._add(match.start(), f"m.{match[2]}", name[1] if qualified else f"{namespace}::{name[1]}", key)

    def _first_literal(self, start: int, end: int) -> str:
        """The string that the first argument of a call is or begins with, pieces of it joined; empty if it is none."""
        words = self._words
        index = words.at(start)
        while index < len(words.words) and words.starts[index] < end and words.kinds[index] != STRING:
            index += 1
        if index >= len(words.words) or words.starts[index] >= end or "," in self._code[start : words.starts[index]]:
            return ""
        pieces = []
        while index < len(words.words) and words.kinds[index] == STRING and words.starts[index] < end:
            literal = _LITERAL.fullmatch(words.words[index])
            pieces.append((literal[2] or literal[3] or "") if literal else "")
            index += 1
            if words.gaps[index].strip():
                break
        return "".join(pieces)
