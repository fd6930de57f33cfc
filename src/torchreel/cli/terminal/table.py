"""Tables on a terminal: numbers are never cut, texts are shortened until a row fits the width."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.box import Box
from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_OF_A_FILE = 120  # columns, when the output is no terminal
_GAP = 2
_LEAST = 12  # columns that a text keeps, however narrow the terminal

# A line below each header, and no other line.
_RULE = Box("    \n    \n -  \n    \n    \n    \n    \n    \n", ascii=True)

# Control characters, what turns the direction of writing, ends of lines but for "\n", halves of surrogate pairs.
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


@dataclass(frozen=True)
class Column:
    """A column of cells that are text already."""

    header: str
    cells: Sequence[str]
    number: bool = False  # drawn to the right, never cut
    keep_end: bool = False  # a text whose end says more than its beginning: a path


def console() -> Console:
    """Standard output: coloured on a terminal unless NO_COLOR is set, else plain and 120 columns wide."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else WIDTH_OF_A_FILE
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def draw(columns: Sequence[Column], out: Console) -> None:
    """Print the columns as a table."""
    from rich.table import Table
    from rich.text import Text

    columns = [_printable(column) for column in columns]
    if _natural(columns) > out.width:
        columns = [_folded_header(column) for column in columns]
    widths = _widths(columns, out.width)
    table = Table(box=_RULE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        header = Text("\n".join(shortened(line, width) for line in column.header.split("\n")))
        table.add_column(header, justify="right" if column.number else "left", width=width, no_wrap=True)
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(
            *(
                Text("\n".join(shortened(line, width, column.keep_end) for line in cell.split("\n")))
                for cell, column, width in zip(row, columns, widths, strict=True)
            )
        )
    width = out.width
    out.width = max(width, sum(widths) + _GAP * len(widths))  # rich would cut numbers to fit the terminal
    with out.capture() as capture:
        out.print(table)
    out.width = width
    out.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def shortened(text: str, width: int, keep_end: bool = False) -> str:
    """The text in at most `width` columns, with an ellipsis where something was cut off."""
    if cell_len(text) <= width:
        return text
    if keep_end:
        return "…" + set_cell_size(text[::-1], width - 1).rstrip()[::-1]
    return set_cell_size(text, width - 1).rstrip() + "…"


def printable(text: str) -> str:
    """Names are the user's: a control character in one must not reach the terminal."""
    return _CONTROL.sub(lambda match: repr(match.group())[1:-1], text)


def one_line(text: str) -> str:
    """The same for a text that must stay on its line: a name, in a cell whose lines have a meaning."""
    return printable(text).replace("\n", "\\n")


def _printable(column: Column) -> Column:
    return Column(printable(column.header), [printable(cell) for cell in column.cells], column.number, column.keep_end)


def _folded_header(column: Column) -> Column:
    if not column.number:
        return column
    front, _, last = column.header.rpartition(" ")
    return Column(f"{front}\n{last}" if front else last, column.cells, column.number)


def _width(column: Column) -> int:
    return max(cell_len(line) for text in (column.header, *column.cells) for line in text.split("\n"))


def _natural(columns: Sequence[Column]) -> int:
    return sum(_width(column) for column in columns) + _GAP * (len(columns) - 1)


def _widths(columns: Sequence[Column], available: int) -> list[int]:
    """Give the widest text less until all fits, or until no text can give more."""
    widths = [_width(column) for column in columns]
    excess = _natural(columns) - available
    texts = [index for index, column in enumerate(columns) if not column.number and widths[index] > _LEAST]
    while excess > 0 and texts:
        # Half of a name says what it is; of a source location that is only the end.
        widest = max(texts, key=lambda index: widths[index] / (2 if columns[index].keep_end else 1))
        widths[widest] -= 1
        excess -= 1
        if widths[widest] == _LEAST:
            texts.remove(widest)
    return widths
