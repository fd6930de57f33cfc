"""The viewer's types are those of the tables."""

from __future__ import annotations

from pathlib import Path

from torchreel.web.typescript import as_typescript

ROOT = Path(__file__).parents[2]


def test_the_types_of_the_viewer_are_made_from_the_tables() -> None:
    written = (ROOT / "viewer/src/tables.ts").read_text()
    assert written == as_typescript(), "run: python -m torchreel.web.typescript >viewer/src/tables.ts"
