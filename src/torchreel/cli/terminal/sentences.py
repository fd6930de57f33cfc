"""Sentences on a terminal, wrapped at words."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def say(out: Console, text: str) -> None:
    """Print a sentence on as many lines as it needs."""
    from torchreel.cli.terminal.table import printable

    for line in textwrap.wrap(printable(text), out.width, break_long_words=False, break_on_hyphens=False):
        out.print(line, soft_wrap=True)
