"""Rows as csv, json or markdown: the formats that commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torchreel.reel.plain import plain

if TYPE_CHECKING:
    from torchreel.cli.terminal.table import Column

FORMATS = ("table", "csv", "json", "markdown")


def write_json(value: Any) -> None:
    """One JSON document, in which every number is a number that JSON knows."""
    json.dump(plain(value), sys.stdout, indent=1, ensure_ascii=False)
    sys.stdout.write("\n")


def write_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Comma-separated rows below their header; a missing value is an empty field."""
    for row in (header, *rows):
        fields = [_quoted(_field(plain(value))) for value in row]
        sys.stdout.write((",".join(fields) if fields != [""] else '""') + "\n")


def write_markdown(columns: Sequence[Column]) -> None:
    """A table as GitHub draws it."""
    from torchreel.cli.terminal.table import printable

    lines = [[column.header for column in columns], ["---:" if column.number else "---" for column in columns]]
    lines += [list(row) for row in zip(*(column.cells for column in columns), strict=True)]
    for line in lines:
        cells = [printable(cell).replace("|", "\\|").replace("\n", "<br>") for cell in line]
        sys.stdout.write(f"| {' | '.join(cells)} |\n")


def _quoted(value: Any) -> str:
    """A field of CSV. Python's writer leaves a lone carriage return bare, and readers take it for the end of a row."""
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text


def _field(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value
