"""A Python source such that the offsets of `ast` are indices: one character for each byte of its UTF-8 form.

`ast` counts columns in bytes. So an offset in the file is the begin of its line plus the column, with no look at the
text, and all offsets become characters at once, at the end. A file in ASCII, as nearly all are, needs no change for it.
"""

from __future__ import annotations

import re
from bisect import bisect_right

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]

BLANKS = r"(?:[ \t\f]|\\\r\n|\\[\r\n])"
"""What may stand between two words of one statement. Not \\s, which has characters that are bytes of others here."""

_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_LINE_END = re.compile("\r\n|\r|\n")


class PythonText:
    """The text of a file, by bytes."""

    def __init__(self, text: str) -> None:
        self.unreadable: list[int] = []
        """Lines with what no source can have. A NUL is read as a blank, half of a character as a question mark."""
        if text.startswith("\ufeff"):
            # Python's tokenizer passes over a form feed at the begin of a line, but in a str not over this mark.
            text = "\f" + text[1:]
        if _UNREADABLE.search(text):
            lines = enumerate(_LINE_END.split(text), 1)
            self.unreadable = [number for number, line in lines if _UNREADABLE.search(line)]
            text = _UNREADABLE.sub(lambda found: " " if found[0] == "\0" else "?", text)
        self.ascii = text.isascii()
        self.text = text
        data = text.encode()
        self.view = text if self.ascii else data.decode("latin-1")
        self.bytes = np.frombuffer(data, np.uint8)
        self._begins = self._line_begins()
        self.begins: list[int] = [0, *self._begins.tolist()]
        """Where line n begins is at index n: lines count from 1."""

    def _line_begins(self) -> Offsets:
        """Lines as Python's tokenizer has them: `\\n`, `\\r\\n` and `\\r` end one, and nothing else does."""
        ends = self.bytes == 10
        if "\r" in self.view:
            returns = self.bytes == 13
            returns[:-1] &= ~ends[1:]
            ends |= returns
        return np.concatenate((np.zeros(1, np.int64), np.flatnonzero(ends) + 1))

    def piece(self, start: int, end: int) -> str:
        """The text between two offsets."""
        piece = self.view[start:end]
        return piece if self.ascii else piece.encode("latin-1").decode("utf-8", "replace")

    def line_at(self, offset: int) -> int:
        """The line, from 1, that an offset is in."""
        return bisect_right(self.begins, offset, 1) - 1

    def characters(self, offsets: Offsets) -> Offsets:
        """The same places, counted in characters."""
        if self.ascii:
            return offsets
        counts = np.zeros(len(self.bytes) + 1, np.int64)
        np.cumsum((self.bytes & 0xC0) != 0x80, out=counts[1:])
        return counts[offsets]

    def lines_and_columns(self, offsets: Offsets) -> tuple[list[int], list[int]]:
        """Line, from 1, and column, in characters from 0, of each offset."""
        lines = np.searchsorted(self._begins, offsets, "right")
        columns = self.characters(offsets) - self.characters(self._begins)[lines - 1]
        return lines.tolist(), columns.tolist()
