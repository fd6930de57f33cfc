"""The words of a C++ text: comments, strings, numbers, names and preprocessor directives, by one regular expression.

The expression splits the text, so words and the gaps between them come out as two lists, and their places follow from
the lengths alone. What a word is depends on its letters only, so each different word is judged once.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from itertools import accumulate

from torchreel.atlas import model

# Kinds of words, each one the negative of the model's: as numbers of one byte, so that a search finds them.
COMMENT, STRING, KEYWORD, NUMBER, PREPROCESSOR = (
    -kind for kind in (model.COMMENT, model.STRING, model.KEYWORD, model.NUMBER, model.PREPROCESSOR)
)
NAME = 0

# Every branch matches to the end of what it began, closed or not: no quote makes the expression look at a text twice.
_PATTERN = r"""(
      {name} (?!["'])
    | /(?: /[^\n\\]*+(?:\\.[^\n\\]*+)*+ | \*.*?(?:\*/|\Z) )
    | {string}
    | {character}
    | \.?[0-9](?:[eEpP][+-]|'?[\w.])*+
    | <(?: (?<=include[ ]<) | (?<=include<) | (?<=include[ \t][ \t]<) | (?<=import[ ]<) | (?<=_next[ ]<) )[^>\n]*+>
    | \#[ \t]*+(?:
          (?:pragma|error|warning|line)\b[^\n\\/]*+(?:(?:\\.|/(?![/*]))[^\n\\/]*+)*+
        | (?:include_next|include|import|define|undef|if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b
      )
    {raw}
    | (?:u8|[uUL])(?: {string} | {character} )
    | {name}
    )"""
_STRING = r""" "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"? """
_CHARACTER = r""" '[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'? """
_RAW = r"""| (?:u8|[uUL])?+ R"([^()\\\s]{0,16})\( .*? (?:\)\2"|\Z)"""
_FLAGS = re.VERBOSE | re.DOTALL
# By whether the text is ASCII and whether it has raw strings: what a text does not have is not looked for.
_PARTS = {"string": _STRING, "character": _CHARACTER}
_ASCII_NAME, _NAME = "[A-Za-z_][A-Za-z0-9_]*+", r"[^\W\d]\w*+"


@functools.cache
def _expression(is_ascii: bool, raw: bool) -> re.Pattern[str]:
    name, flags = (_ASCII_NAME, _FLAGS | re.ASCII) if is_ascii else (_NAME, _FLAGS)
    return re.compile(_PATTERN.format(name=name, raw=_RAW if raw else "", **_PARTS), flags)


_KEYWORDS_TEXT = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    compl concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype
    default defined delete do double dynamic_cast else enum explicit export extern false final float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq override private
    protected public register reinterpret_cast requires return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
    using virtual void volatile wchar_t while xor xor_eq __attribute__ __declspec __global__ __device__ __host__
    __shared__ __constant__ __restrict__ __restrict __forceinline__ __noinline__ __launch_bounds__ __inline__
    __VA_ARGS__ __VA_OPT__ __has_include
"""
_KEYWORDS = frozenset(_KEYWORDS_TEXT.split())
_BY_FIRST = {"/": COMMENT, '"': STRING, "'": STRING, "<": STRING, "#": PREPROCESSOR, ".": NUMBER}
_BY_FIRST |= dict.fromkeys("0123456789", NUMBER)
_LINE_END = re.compile("\n")
_OF_KIND = {kind: re.compile(re.escape(bytes((kind,)))) for kind in (COMMENT, PREPROCESSOR)}


def _kind(word: str) -> int:
    """The kind of a word that is no name."""
    return _BY_FIRST.get(word[0], STRING)  # letters may stand before a literal, as in L"x"


class Words:
    """The words of a text, in order."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.ascii = text.isascii()
        raw = 'R"' in text
        parts: list[str] = _expression(self.ascii, raw).split(text)
        if raw:
            del parts[2::3]  # what is between the quote and the bracket of a raw string
        self.words = parts[1::2]
        self.gaps = parts[0::2]
        """What is between the words: the gap of index i comes before word i; the last one ends the text."""
        ends = list(accumulate(map(len, parts)))
        self.starts = ends[0:-1:2]
        self.ends = ends[1::2]
        self.kind_of = {
            word: KEYWORD if word in _KEYWORDS else NAME if word.isidentifier() else _kind(word)
            for word in dict.fromkeys(self.words)
        }
        """The kind of each different word, in the order in which they first occur."""
        self.names = [word for word, kind in self.kind_of.items() if kind == NAME]
        """Each different name, in the same order."""
        self.kinds = bytes(map(self.kind_of.__getitem__, self.words))
        self.line_ends = [-1, *(match.start() for match in _LINE_END.finditer(text))]
        """Places of the line feeds. One before the text makes lines count from 1."""
        self.directives = [index for index in self.of_kind(PREPROCESSOR) if self.alone(index)]
        """Indices of the words that begin a line of the preprocessor."""

    def of_kind(self, kind: int) -> list[int]:
        """The indices of all words of a kind."""
        return [match.start() for match in _OF_KIND[kind].finditer(self.kinds)]

    def alone(self, index: int) -> bool:
        """Whether a word is the first of its line."""
        _, newline, indent = self.gaps[index].rpartition("\n")
        return not indent.strip() and (newline != "" or index == 0)

    def at(self, place: int) -> int:
        """The index of the first word that begins at this place or later."""
        return bisect_left(self.starts, place)

    def line(self, place: int) -> int:
        """The line of a place in the text, from 1."""
        return bisect_left(self.line_ends, place)

    def line_start(self, line: int) -> int:
        """The place where a line begins."""
        return self.line_ends[line - 1] + 1
