"""Lines of the preprocessor: what they include and define, and which of them hide code from a reader.

A parser of declarations has no use for them: a conditional may stand in the middle of a declaration. So all of them are
taken out of the code, with what `#if 0` disables. Both branches of a conditional stay, one after the other, unless they
are pieces of something that began before them: then only the first makes sense.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from torchreel.atlas.model import Import
from torchreel.atlas.read.cpp.words import STRING, Words

_CONTINUED = re.compile(r"[^\n\\]*+(?:\\.[^\n\\]*+)*+", re.DOTALL)
_INCLUDED = re.compile(r"#[ \t]*+\w++[ \t]*+<([^>\n]++)>")
_PARAMETERS = re.compile(r"\(([^()]*)\)")
_NEVER = re.compile(r"#[ \t]*if[ \t]+(?:0|false)\b")
_NO_CODE = re.compile(
    r"""//[^\n\\]*+(?:\\.[^\n\\]*+)*+ | /\*.*?(?:\*/|\Z)
    | "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"? | '[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'?
    | (?m:^)[ \t]*+\#[^\n\\]*+(?:\\.[^\n\\]*+)*+""",
    re.VERBOSE | re.DOTALL,
)
_OTHER_THAN_BRACKETS = re.compile(r"[^(){}\[\]]++")
_PAIRS = re.compile(r"\(\)|\[\]|\{\}")
_DEEPEST = 40
"""Conditionals within conditionals beyond this are not looked into: to look at one is to read all that is in it."""


class Macro(NamedTuple):
    """A #define."""

    word: int
    """The index of its name."""
    start: int
    """Where the line begins, ..."""
    head: int
    """... where its name ends, or its parameters do, ..."""
    end: int
    """... and where it ends."""
    parameters: list[str]


class Directives:
    """The preprocessor's lines of a text."""

    def __init__(self, words: Words) -> None:
        self.imports: list[Import] = []
        self.macros: list[Macro] = []
        self.spans: list[tuple[int, int]] = []
        """Where the lines are, continued ones to their last."""
        self.ranges: list[tuple[int, int, int]] = []
        """From which word to which they go, and where they end."""
        self.indices = set[int]()
        """Of the words in them."""
        self.hidden: list[tuple[int, int]] = []
        """Code that a reader of declarations must not see."""
        self._words = words
        self._open: list[list[tuple[int, int]]] = []
        for index in words.directives:
            if index not in self.indices:  # of a line that is continued
                self._read(index)

    def _read(self, index: int) -> None:
        words = self._words
        start = words.starts[index]
        directive = words.words[index]
        end = words.text.find("\n", words.ends[index])
        if end < 0:
            end = len(words.text)
        elif words.text[end - 1] == "\\" or words.text[end - 2] == "\\":
            line = _CONTINUED.match(words.text, start)
            end = line.end() if line else end
        last = words.at(end)
        self.spans.append((start, end))
        self.ranges.append((index, last, end))
        self.indices.update(range(index, last))
        if directive == "#include" or directive.endswith(("include", "import", "include_next")):
            if index + 1 in self.indices and words.kinds[index + 1] == STRING:
                self.imports.append(Import(words.line(start), words.words[index + 1][1:-1]))
            else:
                self._include(start, end)
        elif directive == "#define" or directive.endswith("define"):
            self._define(index, start, end)
        else:
            self._condition(directive[1:].lstrip(), start, end)

    def _include(self, start: int, end: int) -> None:
        """What is included after many blanks."""
        target = _INCLUDED.match(self._words.text, start, end)
        if target:
            self.imports.append(Import(self._words.line(start), target[1]))

    def _define(self, index: int, start: int, end: int) -> None:
        words = self._words
        name = index + 1
        if name < len(words.words) and words.ends[name] <= end and words.gaps[name].isspace():
            found = _PARAMETERS.match(words.text, words.ends[name], end)
            parameters = re.findall(r"\w+", found[1]) if found else []
            self.macros.append(Macro(name, start, found.end() if found else words.ends[name], end, parameters))

    def _condition(self, directive: str, start: int, end: int) -> None:
        if directive.startswith("if"):
            self._open.append([(start, end)])
        elif directive.startswith("el") and self._open:
            self._open[-1].append((start, end))
        elif directive == "endif" and self._open:
            self._close([*self._open.pop(), (start, end)])

    def _close(self, branches: list[tuple[int, int]]) -> None:
        bodies = [(branches[i][1], branches[i + 1][0]) for i in range(len(branches) - 1)]
        if _NEVER.match(self._words.text, branches[0][0]):
            self.hidden.append(bodies.pop(0))
        if len(bodies) > 1 and len(self._open) < _DEEPEST and not self._all_whole(bodies):
            self.hidden.extend(bodies[1:])

    def _all_whole(self, bodies: list[tuple[int, int]]) -> bool:
        codes: list[str] = []
        for start, end in sorted(bodies, key=lambda body: body[1] - body[0]):
            if len(codes) == len(bodies) - 1 and not any(codes):
                return True  # only one branch has code, as where the other one is an #error
            codes.append(_NO_CODE.sub("", self._words.text[start:end]).strip())
        return all(map(_is_whole, codes))


def _is_whole(code: str) -> bool:
    """Whether a piece of code opens and closes all its brackets, and ends with a declaration or a statement."""
    if code and code[-1] not in ";},:":
        return False
    brackets = _OTHER_THAN_BRACKETS.sub("", code)
    for _ in range(_DEEPEST):
        shorter = _PAIRS.sub("", brackets)
        if len(shorter) == len(brackets):
            break
        brackets = shorter
    return not brackets
