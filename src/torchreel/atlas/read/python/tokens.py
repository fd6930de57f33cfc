"""The tokens of a Python source: where comments, strings, keywords, numbers and names stand.

One regular expression takes the whole text apart, the gaps between tokens as well, so that the ends of the pieces
follow from their lengths: no match object is made, and the rest is arithmetic on arrays. Of the names that it knows the
syntax tree gives the *ends* (of an attribute it gives no begin), and a piece that ends there is that name.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from itertools import compress

import numpy as np
import numpy.typing as npt

from torchreel.atlas.model import COMMENT, KEYWORD, NUMBER, STRING
from torchreel.atlas.read.python.text import Offsets, PythonText

# What a piece is before it is known as a use or a definition; beside the kinds of `model`.
_GAP, _NAME, _DOTTED = -100, -101, -102
PLAIN = -1
"""In place of the slot of a name that is no use: a local variable."""

WORD = r"A-Za-z0-9_\x80-\xff"
_NAMED = rf"[A-Za-z_\x80-\xff][{WORD}]*+"
_DIGITS = r"[0-9](?:_?[0-9])*+"
_NUMBERS = (
    r"0[xX](?:_?[0-9a-fA-F])++|0[bB](?:_?[01])++|0[oO](?:_?[0-7])++"
    rf"|(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][-+]?{_DIGITS})?[jJ]?"
)
_ESCAPE = r"\\(?:\r\n|.)"
# A string that nobody closes ends with its line, or, with three quotes, with the text.
STRINGS = (
    r"(?:[rRuUbBfF]|[bBfF][rR]|[rR][bBfF])?(?:"
    rf'"""[^"\\]*+(?:(?:{_ESCAPE}|"(?!""))[^"\\]*+)*+(?:"""|\\?\Z)'
    rf"|'''[^'\\]*+(?:(?:{_ESCAPE}|'(?!''))[^'\\]*+)*+(?:'''|\\?\Z)"
    rf'|"[^"\\\r\n]*+(?:{_ESCAPE}[^"\\\r\n]*+)*+"?'
    rf"|'[^'\\\r\n]*+(?:{_ESCAPE}[^'\\\r\n]*+)*+'?)"
)
_COMMENTS = r"#[^\r\n]*+"

# A name with the dot before it is one piece: that saves a fifth of them. The last names are those before a string,
# as in `in"abc"`.
_PIECES = re.compile(rf"""[^{WORD}"'#.]++|\.?{_NAMED}(?!["'])|{STRINGS}|{_COMMENTS}|{_NUMBERS}|{_NAMED}|.""", re.DOTALL)
STRINGS_AND_COMMENTS = re.compile(f"({STRINGS})|({_COMMENTS})", re.DOTALL)

_KEYWORDS = frozenset(keyword.kwlist)


def _by_first_byte() -> npt.NDArray[np.int32]:
    kinds = np.full(256, _GAP, np.int32)
    kinds[[byte for byte in range(256) if re.match(f"[{WORD}]", chr(byte))]] = _NAME
    kinds[[ord(digit) for digit in "0123456789"]] = NUMBER
    kinds[[ord('"'), ord("'")]] = STRING
    kinds[ord("#")] = COMMENT
    kinds[ord(".")] = _DOTTED
    return kinds


_BY_FIRST_BYTE = _by_first_byte()


class PythonTokens:
    """The pieces of a text, each with its end (an offset of `PythonText`) and its kind."""

    def __init__(self, source: PythonText) -> None:
        self._source = source
        pieces = _PIECES.findall(source.view)
        self._ends: Offsets = np.fromiter(map(len, pieces), np.int64, len(pieces)).cumsum()
        self._kinds = self._kinds_of(pieces)
        self._dots = self._kinds == _DOTTED
        self._set_starts()
        comments = self._kinds == COMMENT
        self.comments: list[tuple[int, str]] = list(
            zip(self._starts[comments].tolist(), compress(pieces, comments.tolist()), strict=True)
        )
        """Where each begins, and its text as `PythonText.view` has it."""

    def _kinds_of(self, pieces: list[str]) -> npt.NDArray[np.int32]:
        """By the first bytes of each piece."""
        text = np.concatenate((self._source.bytes, np.zeros(2, np.uint8)))
        starts = np.concatenate((np.zeros(1, np.int64), self._ends))[:-1]
        kinds = _BY_FIRST_BYTE[text[starts]]
        dots = np.flatnonzero(kinds == _DOTTED)
        behind = _BY_FIRST_BYTE[text[starts[dots] + 1]]
        kinds[dots[behind == NUMBER]] = NUMBER
        kinds[dots[self._ends[dots] - starts[dots] == 1]] = _GAP
        # Up to two letters before a quote belong to the string, if the piece goes on with the quote.
        names = np.flatnonzero(kinds == _NAME)
        for letters in (1, 2):
            prefixes = names[_BY_FIRST_BYTE[text[starts[names] + letters]] == STRING]
            kinds[prefixes[self._ends[prefixes] - starts[prefixes] > letters]] = STRING
        kinds[np.fromiter(map(_KEYWORDS.__contains__, pieces), bool, len(pieces))] = KEYWORD
        return kinds

    def mark(self, ends: Sequence[int], kinds: Sequence[int] | int) -> Offsets:
        """Say what the names are that end at these offsets, and get where they begin: -1 where no name ends.

        A kind is a slot, DEFINITION, KEYWORD, or PLAIN.
        """
        wanted = np.array(ends, np.int64)
        starts = np.full(len(wanted), -1, np.int64)
        if not len(wanted) or not len(self._ends):
            return starts
        found = np.minimum(np.searchsorted(self._ends, wanted), len(self._ends) - 1)
        named = (self._ends[found] == wanted) & (self._kinds[found] <= _NAME)
        starts[named] = self._starts[found[named]]
        kinds_of = np.broadcast_to(np.array(kinds, np.int64), wanted.shape)
        named &= kinds_of != PLAIN
        self._kinds[found[named]] = kinds_of[named]
        return starts

    def mark_within_strings(self, spans: Sequence[tuple[int, int, int]]) -> None:
        """Say what names in f-strings are: start, end and slot. What lies in no string is left out."""
        if not spans or not len(self._ends):
            return
        starts, ends, slots = np.array(sorted(spans), np.int64).T
        found = np.searchsorted(self._ends, ends)
        inside = found < len(self._ends)
        found = np.minimum(found, len(self._ends) - 1)
        inside &= (self._kinds[found] == STRING) & (self._starts[found] < starts) & (ends < self._ends[found])
        inside[1:] &= starts[1:] > ends[:-1]
        starts, ends, slots = starts[inside], ends[inside], slots[inside]
        # A piece is known by its end alone. Two are new, the string up to a name and the name; the rest was there.
        ends = np.concatenate((self._ends, starts, ends))
        kinds = np.concatenate((self._kinds, np.full(len(starts), STRING), slots))
        order = np.argsort(ends, kind="stable")
        self._ends, self._kinds = ends[order], kinds[order]
        self._dots = np.concatenate((self._dots, np.zeros(2 * len(starts), bool)))[order]
        self._set_starts()

    def _set_starts(self) -> None:
        """A piece begins where the one before ends; a name after a dot begins behind the dot."""
        self._starts: Offsets = np.concatenate((np.zeros(1, np.int64), self._ends))[:-1] + self._dots

    def uses(self) -> tuple[Offsets, list[int]]:
        """Where each name that is used begins, and its slot, in the order of the text."""
        used = self._kinds >= 0
        return self._starts[used], self._kinds[used].tolist()

    def listed(self) -> list[tuple[int, int, int]]:
        """All that is not plain: start, end, both in characters of the text, and kind."""
        shown = self._kinds > _GAP
        starts = self._source.characters(self._starts[shown])
        ends = self._source.characters(self._ends[shown])
        return list(zip(starts.tolist(), ends.tolist(), self._kinds[shown].tolist(), strict=True))
