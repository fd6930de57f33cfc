"""What the comments of a C++ text say, of the file and of what it declares."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchreel.atlas.read.cpp.words import COMMENT, Words

_LICENCE = re.compile(r"copyright|licen[cs]e|all rights reserved|\bSPDX\b", re.IGNORECASE)
_FOR_TOOLS = re.compile(r"NOLINT|clang-format|@lint-ignore|IWYU|namespace\b|=+$|-+$|$", re.IGNORECASE)
_MARKS = re.compile(r"^[ \t]*+\*++(?=\s|\Z)[ \t]?|(?<![ \t\r])[ \t\r]++$", re.MULTILINE)
_LONGEST_DOC = 10_000
"""Characters of what a comment says about one symbol."""


def plain(comment: str) -> str:
    """A comment without its marks."""
    if comment.startswith("//"):
        return comment.lstrip("/").lstrip("!<").removeprefix(" ").rstrip()
    inside = comment[2:].removesuffix("*/").lstrip("*").lstrip("!<").removeprefix(" ")
    return _MARKS.sub("", inside).strip("\n")


class Comments:
    """The comments of a text."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._indices = words.of_kind(COMMENT)
        self._ending: dict[int, int] = {}
        """By the line that it ends in, a comment with nothing else on its lines."""
        self._trailing: dict[int, int] = {}
        """By its line, a comment that comes after something else."""
        self._docs: dict[int, str] = {}
        for index in self._indices:
            start = words.starts[index]
            line = words.line(start)
            if words.alone(index):
                self._ending[words.line(words.ends[index]) if "\n" in words.words[index] else line] = index
            else:
                self._trailing.setdefault(line, index)

    @property
    def prose(self) -> str:
        """All that they say."""
        return "\n".join([plain(self._words.words[index]) for index in self._indices])

    def above(self, line: int) -> str:
        """What the comment says that ends right above a line."""
        index = self._ending.get(line - 1)
        return "" if index is None else self._doc(index)

    def behind(self, line: int, word: int) -> str:
        """What the comment says that stands in a line after this word."""
        index = self._trailing.get(line)
        return "" if index is None or index < word else self._doc(index)

    def _doc(self, index: int) -> str:
        doc = self._docs.get(index)
        if doc is None:
            text = self._block(index)
            doc = self._docs[index] = "" if _FOR_TOOLS.match(text) else text[:_LONGEST_DOC]
        return doc

    def _block(self, index: int) -> str:
        """A comment with the lines of comments directly above it."""
        words = self._words
        block = [words.words[index]]
        line = words.line(words.starts[index])
        while block[-1].startswith("//") and words.alone(index):
            line -= 1
            above = self._ending.get(line)
            if above is None or not words.words[above].startswith("//"):
                break
            block.append(words.words[above])
        return "\n".join([plain(comment) for comment in reversed(block)])

    def first(self, bodies: Iterator[tuple[int, int]]) -> str:
        """What the first comment says that is no licence and in no body of a function.

        Bodies are given from the word at which they begin to the one behind them, in order.
        """
        words = self._words
        start, end = 0, 0
        for line, index in self._ending.items():
            while end <= index:
                start, end = next(bodies, (len(words.words), len(words.words)))
            if start <= index or (line + 1 in self._ending and words.words[index].startswith("//")):
                continue  # in a body, or its block goes on
            text = self._block(index)
            if not _LICENCE.search(text) and not _FOR_TOOLS.match(text):
                return text
        return ""
