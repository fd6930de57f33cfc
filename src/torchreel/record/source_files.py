"""The table `sources`: which files a recording's frames name, as they are on disk when the recording ends.

Python does not keep the bytes of what it imports, so a file that changed while the program ran is hashed as it is now.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from torchreel.reel.owners import USER, owner_of
from torchreel.reel.source_files import MOST_TEXT, content_of, digest_of, text_of
from torchreel.reel.tables import SOURCES

MOST_TEXTS = 64 << 20  # of one process, in characters


class SourceFiles:
    """Reads each file once, for all processes that are closed together."""

    def __init__(self, texts: bool) -> None:
        self._texts = texts
        self._read: dict[str, dict[str, Any] | None] = {}  # the row of each file, with its text if it may have one

    def __call__(self, files: Iterable[str], directory: str | None) -> pa.Table:
        """A row per file that is there; the text of those of the program's own, which lie below its directory."""
        root = _resolved(directory) if directory is not None else None
        rows, room = [], MOST_TEXTS
        for file in sorted(set(files)):
            row = self._row(file)
            if row is None:
                continue
            text = row["text"]
            if text is not None and (root is None or len(text) > room or not _is_own(file, root)):
                text = None
            room -= len(text or "")
            rows.append({**row, "text": text})
        return pa.Table.from_pylist(rows, schema=SOURCES.schema)

    def _row(self, file: str) -> dict[str, Any] | None:
        if file not in self._read:
            data = content_of(file)
            self._read[file] = None if data is None else self._described(file, data)
        return self._read[file]

    def _described(self, file: str, data: bytes) -> dict[str, Any]:
        shows = self._texts and len(data) <= MOST_TEXT and file.endswith(".py") and owner_of(file) == USER
        return {
            "path": file,
            "bytes": len(data),
            "sha256": digest_of(data),
            "text": text_of(data) if shows else None,
        }


def _is_own(file: str, root: Path) -> bool:
    """Whether it lies below the program's directory, and is not of a library that is installed there."""
    found = _resolved(file)
    return found is not None and found.is_relative_to(root) and owner_of(str(found)) == USER


def _resolved(path: str) -> Path | None:
    try:
        return Path(path).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None


def program_directory() -> Path | None:
    """Where the source of this process's program is: the directory of its script, or the one that holds the package of
    its module; None if it has neither, as in a notebook."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if not isinstance(file, str):
        return None
    name = getattr(getattr(main, "__spec__", None), "name", None)
    packages = name.count(".") if isinstance(name, str) else 0  # python -m package.train
    try:
        directories = Path(file).resolve().parents
    except (OSError, ValueError, RuntimeError):
        return None
    return directories[packages] if packages < len(directories) else None
