"""The text of Python files that a reel names, as they are on this machine now; and of no other file of it."""

from __future__ import annotations

import stat
from pathlib import Path

MOST_BYTES = 2 << 20


def text_of(file: str) -> tuple[str | None, str | None]:
    """The text, or why there is none. Call it only with files that the reel's frames name."""
    path = Path(file)
    if path.suffix != ".py":
        return None, "no Python file: line numbers only"
    try:
        found = path.resolve(strict=True)
        status = found.stat()
        if found.suffix != ".py" or not stat.S_ISREG(status.st_mode):
            return None, "not a regular Python file: line numbers only"
        if status.st_size > MOST_BYTES:
            return None, "larger than 2 MiB: line numbers only"
        return found.read_text(errors="replace"), None
    except (OSError, ValueError, RuntimeError):
        return None, "not on this machine: line numbers only"
