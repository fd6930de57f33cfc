"""A Python file that `ast` refuses: the largest part of it that `ast` accepts, and the blocks that it does not.

One function in the syntax of a newer Python, or one forgotten parenthesis, must not cost the rest of the file. The line
that an error names is taken out, then, if that does not help, the function or class around it, and so on outwards. What
is taken out leaves a `pass` behind, so that the block around it stays one.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from torchreel.atlas.read.python.text import PythonText

MOST_REPAIRS = 16
_PLACEHOLDER = "pass"

_HEADER = re.compile(r"[ \t\f]*(?:@|(?:async[ \t]+)?def[ \t\\]|class[ \t\\])")
_DECORATOR = re.compile(r"[ \t\f]*@")
# Lines of a block that stand no deeper than its first: they close a bracket, or say nothing.
_NO_END_OF_BLOCK = re.compile(r"[ \t\f]*(?:[)\]}#]|[\r\n]|\Z)")
_INDENTATION = re.compile(r"[ \t\f]*")
_NOT_BLANK = re.compile(r"[^\r\n]+")

REFUSALS = (SyntaxError, ValueError, RecursionError, MemoryError)
"""Of `ast`: beside errors in the syntax numbers of too many digits, and nesting that is too deep for it."""


@dataclass(frozen=True)
class Block:
    """Lines that were taken out."""

    start: int
    """Where they begin, behind their indentation, ..."""
    end: int
    """... and end, before the line does."""
    placeholder: int
    """Where the `pass` stands."""


@dataclass(frozen=True)
class Repaired:
    tree: ast.Module | None
    """None if nothing was left that `ast` accepts."""
    blocks: list[Block]
    errors: list[int]
    """The lines that errors named."""


def parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that are none: they are the author's, not the reader's
        return ast.parse(text)


def repair(source: PythonText, error: BaseException) -> Repaired:
    """`error` is how `ast` refused the file."""
    blocks: list[Block] = []
    errors: list[int] = []
    around: dict[int, Iterator[Block]] = {}
    for _ in range(MOST_REPAIRS):
        line = _line(error, source)
        if line is None:
            break
        errors.append(line)
        block = next(around.setdefault(line, _blocks_around(source, line)), None)
        if block is None:
            break
        blocks = [one for one in blocks if not block.start <= one.start < block.end] + [block]
        try:
            return Repaired(parse(_without(source, blocks)), blocks, errors)
        except REFUSALS as refusal:
            error = refusal
    return Repaired(None, [], errors)


def _line(error: BaseException, source: PythonText) -> int | None:
    line = getattr(error, "lineno", None)
    return min(line, len(source.begins) - 1) if line else None


def _blocks_around(source: PythonText, line: int) -> Iterator[Block]:
    """What may be taken out for an error in a line: the line, then the definitions around it from the inmost on."""
    begin, indent = source.begins[line], _indent(source, line)
    if not _HEADER.match(source.view, begin):
        yield Block(begin + indent, _line_end(source, line), begin + indent)
    indent += 1
    for above in range(line, 0, -1):
        if _HEADER.match(source.view, source.begins[above]) and _indent(source, above) < indent:
            indent = _indent(source, above)
            yield _definition(source, above, line)


def _definition(source: PythonText, header: int, line: int) -> Block:
    """A definition with its decorators, down to the end of its body, or to a line at least."""
    indent = _indent(source, header)
    first, count = header, len(source.begins) - 1
    while first > 1 and _DECORATOR.match(source.view, source.begins[first - 1]):
        first -= 1
    while header < count and _DECORATOR.match(source.view, source.begins[header]):
        header += 1
    last = max(header, line)
    while last < count and not _ends_block(source, last + 1, indent):
        last += 1
    return Block(
        source.begins[first] + _indent(source, first),
        _line_end(source, last),
        source.begins[header] + _indent(source, header),
    )


def _ends_block(source: PythonText, line: int, indent: int) -> bool:
    return _indent(source, line) <= indent and not _NO_END_OF_BLOCK.match(source.view, source.begins[line])


def _indent(source: PythonText, line: int) -> int:
    blanks = _INDENTATION.match(source.view, source.begins[line])
    return len(blanks[0]) if blanks else 0


def _line_end(source: PythonText, line: int) -> int:
    """Where the text of a line ends, without what ends the line."""
    text = _NOT_BLANK.match(source.view, source.begins[line])
    return text.end() if text else source.begins[line]


def _without(source: PythonText, blocks: list[Block]) -> str:
    view = source.view
    for block in blocks:
        blank = _NOT_BLANK.sub(lambda line: " " * len(line[0]), view[block.start : block.end])
        view = view[: block.start] + blank + view[block.end :]
        at = block.placeholder
        room = _line_end(source, source.line_at(at)) - at
        fill = _PLACEHOLDER if room >= len(_PLACEHOLDER) else "0"[:room]
        view = view[:at] + fill + view[at + len(fill) :]
    return view if source.ascii else view.encode("latin-1").decode()
