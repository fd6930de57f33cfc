"""docs/atlas.md says what the code does: it is made from the code."""

from __future__ import annotations

from pathlib import Path

from tests.reel.test_tables import described
from torchreel.atlas.tables import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "atlas.md"


def test_the_page_lists_every_table_and_column() -> None:
    assert described(TABLES) in PAGE.read_text()
