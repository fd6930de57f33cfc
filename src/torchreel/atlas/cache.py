"""What was made once and need not be made again: files in the user's cache directory.

A file that is not there, cannot be read or cannot be written is as good as none.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


def folder() -> Path | None:
    """Where such files are; None if there is no place for them."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        above = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # nobody's home
        return None
    return above / "torchreel"


def own(path: Path | None) -> bytes | None:
    """The bytes of a file that nobody but this user can have written; None if it is not there, or another's."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            return file.read()
    except OSError:
        return None


def keep(path: Path | None, data: bytes) -> None:
    """Write a file as a whole, if that can be done."""
    if path is None:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
