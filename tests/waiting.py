"""Wait for a condition, never for a time: a machine may be as slow as it likes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

_SECONDS = 500  # less than a test may take


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "what is waited for does not come about"
        time.sleep(0.01)


def written(directory: Path) -> int:
    """How many bytes the files below a directory have, which others may be writing and removing."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total
