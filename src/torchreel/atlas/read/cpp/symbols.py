"""The symbols of a C++ text: what it declares and defines, with signatures and comments."""

from __future__ import annotations

import re
from bisect import bisect_left

from torchreel.atlas.model import Symbol
from torchreel.atlas.read.cpp.code import Code
from torchreel.atlas.read.cpp.comments import Comments
from torchreel.atlas.read.cpp.directives import Directives, Macro
from torchreel.atlas.read.cpp.frames import Declared
from torchreel.atlas.read.cpp.structure import Structure
from torchreel.atlas.read.cpp.words import Words

_LONGEST_SIGNATURE = 500
_LONGEST_READ = 4000
"""Of what becomes a signature, comments included."""
_LONGEST_VALUE = 120
"""Of a variable with its value, or a macro with what it stands for; a longer one is shown without."""
_VALUES = frozenset(("variable", "field"))
_WITHOUT_BODIES = frozenset(("enumerator", "field", "variable", "using", "alias", "macro"))
_COMMENT_OR_LITERAL = re.compile(r"""//[^\n]*+|/\*.*?\*/|("[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?)""", re.DOTALL)
_VALUE = re.compile(r"((?:\s*\[[^\]]*\])*)\s*[={(]")


def symbols(
    words: Words, code: Code, directives: Directives, structure: Structure, comments: Comments
) -> list[tuple[int, Symbol]]:
    """The symbols, in the order of the text, each with the index of the word that names it."""
    reader = _Reader(words, code, directives, comments)
    found = [(row.word, reader.declared(row)) for row in structure.declared]
    found += [(macro.word, reader.macro(macro)) for macro in directives.macros]
    found.sort(key=lambda row: row[0])
    return found


def _one_line(text: str) -> str:
    if "//" in text or "/*" in text:
        text = _COMMENT_OR_LITERAL.sub(lambda match: match[1] or " ", text)
    text = " ".join(text.split()).replace("( ", "(").replace(" )", ")").replace(" ,", ",")
    text = text.replace("template < ", "template <")
    return text if len(text) <= _LONGEST_SIGNATURE else f"{text[: _LONGEST_SIGNATURE - 4]} ..."


class _Reader:
    def __init__(self, words: Words, code: Code, directives: Directives, comments: Comments) -> None:
        self._words = words
        self._code = code
        self._directives = directives
        self._comments = comments

    def declared(self, row: Declared) -> Symbol:
        words, code = self._words, self._code
        ends = words.line_ends
        place = words.starts[row.word] - (row.name[0] == "~")
        line = bisect_left(ends, place)
        start = self._start(row.start)
        first = line if start > ends[line - 1] else bisect_left(ends, start)
        last = bisect_left(ends, code.place(row.end - 1))
        doc = self._comments.above(first)
        if doc and words.text[ends[first - 1] + 1 : start].strip():
            doc = ""  # about something else in this line
        if not doc and (row.declaration or row.kind in _WITHOUT_BODIES):
            doc = self._comments.behind(last, code.word_at(row.end - 1))
        signature = self._signature(row, start)
        column = place - ends[line - 1] - 1
        return Symbol(row.name, row.scope, row.kind, line, last, signature, doc, row.declaration, column)

    def _start(self, offset: int) -> int:
        """The place where a declaration begins, with the macros before it that are left out of the code."""
        words, code = self._words, self._code
        index = code.word_at(offset)
        place = words.starts[index] if code.starts[index] == offset else code.place(offset)
        if code.left_out:
            index = words.at(place) - 1
            while index in code.left_out and not words.gaps[index + 1].strip():
                place = words.starts[index]
                index -= 1
        return place

    def _signature(self, row: Declared, start: int) -> str:
        words = self._words
        stop = min(self._code.place(row.head - 1) + 1, start + _LONGEST_READ)
        text = words.text[start:stop]
        if row.kind in _VALUES and (len(text) > _LONGEST_VALUE or "\n" in text):
            value = _VALUE.match(words.text, words.ends[row.word], stop)
            if value:
                text = words.text[start : value.end(1)]
        return _one_line(text.removesuffix(";"))

    def macro(self, macro: Macro) -> Symbol:
        words = self._words
        place = words.starts[macro.word]
        line = words.line(place)
        whole = words.text[macro.start : macro.end]
        if len(whole) > _LONGEST_VALUE or "\n" in whole:
            whole = words.text[macro.start : macro.head]
        doc = self._comments.above(words.line(macro.start))
        return Symbol(
            name=words.words[macro.word],
            scope="",
            kind="macro",
            line=line,
            end_line=words.line(macro.end),
            signature=_one_line(whole.replace("\\\n", " ")),
            doc=doc or self._comments.behind(line, macro.word),
            column=place - words.line_start(line),
        )
