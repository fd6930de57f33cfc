"""The code of a C++ text as a parser of declarations reads it best, and the way back to the text.

Comments, preprocessor lines, the insides of strings and long blanks say nothing about declarations, and take a third
of the parser's time; macros mislead it. All of that is left out. What remains is words and gaps of the text in their
order, so a place in the code leads to a word of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import accumulate

from torchreel.atlas.read.cpp.directives import Directives
from torchreel.atlas.read.cpp.macros import Macros
from torchreel.atlas.read.cpp.words import COMMENT, NUMBER, STRING, Words

_NOT_CPP = re.compile(r"[^\t\n\r -?A-\[\]-_a-~]")
_NOT_BLANK = re.compile(r"\S++")
_BRACKETS = re.compile(r"[(){}\[\]]")
_STEPS = {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}
_LAUNCH = re.compile(r"<<<(?:[^;{}<>]++|<(?!<<)|>(?!>>))*+>>>")
_MISREAD_DEFAULT = re.compile(r"= ?\{\}(?=[,)])|\* =(?!=)")
"""Defaults of parameters that the parser does not understand: `T x = {}`, and `T* = nullptr` without a name."""
_DEEPEST = 200
"""Brackets within brackets: the parser's time grows with the square of it."""
_MOST_ANGLES = 2000
"""Of one statement: each may begin a list of arguments within a list of arguments."""
_STATEMENT = re.compile(r"[^;{}]++")


def _squeezed(gap: str) -> str:
    short = " ".join(_NOT_CPP.sub(" ", gap).split())
    if "=" in short:
        short = _MISREAD_DEFAULT.sub(lambda match: match[0].replace("{}", "0 ").replace("*", " "), short)
    return short or " "[: len(gap)]


class _Gaps(dict[str, str]):
    """What is left of gaps. All texts have nearly the same ones."""

    def __missing__(self, gap: str) -> str:
        short = _squeezed(gap)
        if len(gap) < 64 and len(self) < 10_000:
            self[gap] = short
        return short


_GAPS = _Gaps()


def _short_word(word: str, kind: int) -> str:
    if kind == COMMENT:
        return " "
    if kind == STRING:
        return '""' if word[-1] == '"' else "'0'"
    return word if word.isascii() else "0" if kind == NUMBER else "_"


def _shallow(code: str) -> str:
    """The code without the brackets that are too deep."""
    if code.count("<") > _MOST_ANGLES:
        code = _STATEMENT.sub(
            lambda match: match[0].replace("<", " ") if match[0].count("<") > _MOST_ANGLES else match[0], code
        )
    if code.count("(") + code.count("{") + code.count("[") <= _DEEPEST:
        return code
    brackets = _BRACKETS.findall(code)
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) <= _DEEPEST:
        return code
    depth = 0
    pieces = list(code)
    for match in _BRACKETS.finditer(code):
        step = _STEPS[match[0]]
        if depth + max(step, 0) > _DEEPEST:
            pieces[match.start()] = " "
        depth = max(depth + step, 0)
    return "".join(pieces)


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


class Code:
    """The code of a text."""

    def __init__(self, words: Words, directives: Directives) -> None:
        self._words = words
        macros = Macros(words, directives)
        self.left_out = macros.left_out
        """Indices of the words of macros that are left out."""
        self._pieces = [""] * (2 * len(words.words) + 1)
        self._pieces[0::2] = map(_GAPS.__getitem__, words.gaps)
        short = {word: _short_word(word, kind) for word, kind in words.kind_of.items() if kind or not words.ascii}
        self._pieces[1::2] = map(short.get, words.words, words.words)
        self._begins: dict[int, int] = {}
        """Where a gap begins in the text, if not with the end of the word before."""
        for index in self.left_out:
            self._pieces[2 * index + 1] = ""
        if "::*" in words.text:
            self._simplify_pointers_to_members()
        self._leave_out_directives(directives.ranges)
        self._leave_out([*directives.hidden, *macros.calls])
        ends = list(accumulate(map(len, self._pieces)))
        self.starts = ends[0:-1:2]
        """Where each word begins in the code; one that is left out, where it would."""
        self._word_ends = ends[1::2]
        code = "".join(self._pieces)
        if "<<<" in code:
            code = _LAUNCH.sub(lambda match: " " * len(match[0]), code)
        self.text = _shallow(code)
        """ASCII only."""

    def _simplify_pointers_to_members(self) -> None:
        """The parser does not know `int (A::*x)`; `int (*x)` says as much about x."""
        for index, gap in enumerate(self._words.gaps):
            if index and gap.startswith("::*"):
                self._pieces[2 * index - 1] = ""
                self._pieces[2 * index] = "  " + self._pieces[2 * index][2:]

    def _leave_out_directives(self, ranges: list[tuple[int, int, int]]) -> None:
        words, pieces = self._words, self._pieces
        for first, last, end in ranges:
            pieces[2 * first + 1 : 2 * last] = [""] * (2 * (last - first) - 1)
            if words.ends[last - 1] < end:
                stop = words.starts[last] if last < len(words.starts) else len(words.text)
                self._begins[last] = end
                pieces[2 * last] = _GAPS[words.text[end:stop]] or " "

    def _leave_out(self, spans: list[tuple[int, int]]) -> None:
        """Leave out what is between these places of the text."""
        words = self._words
        stops: dict[int, int] = {}
        begins: dict[int, int] = {}
        for start, end in _merged(spans):
            first, last = words.at(start), words.at(end)
            self._pieces[2 * first + 1 : 2 * last + 1] = [""] * (2 * (last - first))
            stops[first] = start
            begins[last] = end
        self._begins |= begins
        for index in stops.keys() | begins.keys():
            begin = self._begins.get(index, words.ends[index - 1] if index else 0)
            stop = stops.get(index, words.starts[index] if index < len(words.starts) else len(words.text))
            self._pieces[2 * index] = _GAPS[words.text[begin:stop]] or " "

    def word_at(self, offset: int) -> int:
        """The index of the word that begins at this offset of the code, or of the last one that begins before it."""
        return bisect_right(self.starts, offset) - 1

    def word_from(self, offset: int) -> int:
        """The index of the first word that begins at this offset of the code or later."""
        return bisect_left(self.starts, offset)

    def place(self, offset: int) -> int:
        """The place in the text of an offset of the code."""
        words = self._words
        index = bisect_right(self.starts, offset) - 1
        if index >= 0 and offset < self._word_ends[index]:
            return words.starts[index] + offset - self.starts[index]
        left = offset - (self._word_ends[index] if index >= 0 else 0)
        begin = self._begins.get(index + 1, words.ends[index] if index >= 0 else 0)
        near = words.text[begin : begin + left + 1]
        if near.split() == [near]:
            return begin + left
        for run in _NOT_BLANK.finditer(words.text, begin):
            if left < run.end() - run.start():
                return run.start() + left
            left -= run.end() - run.start() + 1
        return begin
