"""What the comments of a Python file say: all of its prose, and of a file without docstring what it is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from torchreel.atlas.read.python.text import PythonText

_LICENCE = re.compile(
    r"copyright|\(c\)|©|licen[cs]e|all rights reserved|spdx-|redistribution and use|without warrant", re.IGNORECASE
)
# Said to tools, not to readers.
_DIRECTIVE = re.compile(
    r"!|.*coding[:=]|-\*-|(?:mypy|type|flake8|noqa|pylint|ruff|fmt|yapf|isort|pyre|pyright|lint|vim?|pragma|nopep8|usort"
    r"|pytype|codespell|cython|distutils|owner\(s\))\b|@(?:generated|nolint|lint)",
    re.IGNORECASE,
)
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = re.compile(r"[ \t\f]*")


def prose_of(source: PythonText, comments: Iterable[tuple[int, str]], docs: Iterable[tuple[int, str]]) -> str:
    """All comments and docstrings in the order of the text."""
    said = [(start, _said(source, start, comment)) for start, comment in comments]
    return "\n".join(text for _, text in sorted([*said, *docs]))


def comment_about(source: PythonText, comments: Sequence[tuple[int, str]], first_statement: int) -> str:
    """The first block of comments before the first statement that is about the file.

    Licences and what is said to tools is not; nor is a block right above a function or a class, which is about that.
    """
    for block in _blocks(source, comments, first_statement):
        lines = [text for text in block if not _DIRECTIVE.match(text)]
        text = "\n".join(lines).strip("\n")
        if text.strip() and not _LICENCE.search(text):
            return text
    return ""


def _blocks(source: PythonText, comments: Sequence[tuple[int, str]], first_statement: int) -> Iterator[list[str]]:
    """Comments on lines one below the other."""
    view = source.view
    block: list[str] = []
    ended = -1
    for start, comment in comments:
        if start > first_statement:
            break
        if block and ended != start:
            yield block
            block = []
        block.append(_said(source, start, comment))
        ended = _next_line(view, start + len(comment))
    if block and not view.startswith(("def ", "class ", "async ", "@"), ended):
        yield block


def _next_line(view: str, at: int) -> int:
    """Where the text of the line below begins."""
    end = _LINE_END.match(view, at)
    blanks = _BLANKS.match(view, end.end() if end else at)
    return blanks.end() if blanks else at


def _said(source: PythonText, start: int, comment: str) -> str:
    """A comment without its marks."""
    text = comment if source.ascii else source.piece(start, start + len(comment))
    return text.lstrip("#").removeprefix(":").removeprefix(" ").rstrip()
