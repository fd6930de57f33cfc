"""Declarations of a Python source on one line each, and docstrings without their indentation."""

from __future__ import annotations

import re

from torchreel.atlas.read.python.text import PythonText
from torchreel.atlas.read.python.tokens import STRINGS, STRINGS_AND_COMMENTS

MOST_OF_A_VALUE = 80
_MOST_READ = 2000  # of a value: enough for what is shown, whatever its blanks and comments

_UNEVEN = re.compile(r"[\r\n\t\f#]|  ")
_BLANKS = r"(?:[ \t\f\r\n]|\\(?=[\r\n]))"
_STRINGS_AND_BLANKS = re.compile(
    rf"({STRINGS})|(?<=[(\[{{]){_BLANKS}++|{_BLANKS}++(?=[)\]}}])|({_BLANKS}++)", re.DOTALL
)


def header(source: PythonText, start: int, body: int) -> str:
    """The signature of a function or class: what stands between `def` or `class` and the body, without the colon."""
    text = source.piece(start, body).rstrip()
    if "#" in text:  # a comment may have colons
        text = one_line(text)
    line = one_line(text[: text.rfind(":")].rstrip())
    # A comma behind the last parameter; `(1,)` as a default has another parenthesis behind its own.
    return f"{line[:-2]})" if line.endswith(",)") else line.replace(",) ->", ") ->", 1)


def assignment(source: PythonText, target: str, value: tuple[int, int] | None, sign: str = " =") -> str:
    """The signature of a variable: its name, perhaps with a type, and the begin of its value."""
    if value is None:
        return one_line(target)
    start, end = value
    cut = min(end, start + _MOST_READ)
    shown = one_line(source.piece(start, cut)).strip()
    if len(shown) > MOST_OF_A_VALUE or cut < end:
        shown = shown[:MOST_OF_A_VALUE] + "…"
    return f"{one_line(target)}{sign} {shown}"


def one_line(text: str) -> str:
    """Without comments and line breaks, and with single blanks, but for those in strings."""
    if not _UNEVEN.search(text):
        return text
    if text.isascii() and "#" not in text and '"' not in text and "'" not in text and "\\" not in text:
        line = " ".join(text.split())
        return line.replace("( ", "(").replace(" )", ")").replace("[ ", "[").replace(" ]", "]")
    # A comment and the blanks around it are one blank: it goes first.
    return _STRINGS_AND_BLANKS.sub(_evened, STRINGS_AND_COMMENTS.sub(_uncommented, text))


def _uncommented(part: re.Match[str]) -> str:
    return part[1] or ""


def _evened(part: re.Match[str]) -> str:
    if part[1]:
        return re.sub("\r\n|\r|\n", r"\\n", part[1])
    return " " if part[2] else ""


def cleaned(doc: str) -> str:
    """A docstring without the indentation that its lines after the first share, and without blank lines around it."""
    if not doc.isascii():
        doc = doc.encode("utf-8", "replace").decode()  # escapes can spell halves of characters
    if "\n" not in doc:
        return doc.strip()
    first, *rest = doc.expandtabs().split("\n")
    indents = [len(line) - len(line.lstrip()) for line in rest if line and not line.isspace()]
    margin = min(indents, default=0)
    return "\n".join([first.lstrip(), *(line[margin:].rstrip() for line in rest)]).strip("\n ")
