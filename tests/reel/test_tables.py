"""docs/format.md says what the code does: it is made from the code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torchreel.reel.tables import TABLES, TableDefinition

FORMAT = Path(__file__).parents[2] / "docs" / "format.md"


def described(tables: Mapping[str, TableDefinition]) -> str:
    """The tables as pages show them."""
    parts = []
    for table in tables.values():
        parts.append(f"### {table.name}\n\nOne row per: {table.row}.\n\n| column | type | meaning |\n|---|---|---|\n")
        for column in table.columns:
            kind = "text" if str(column.type).startswith(("dictionary", "string")) else str(column.type)
            parts.append(f"| `{column.name}` | {kind} | {column.meaning} |\n")
        parts.append("\n")
    return "".join(parts)


def test_the_format_page_lists_every_table_and_column() -> None:
    assert described(TABLES) in FORMAT.read_text()
