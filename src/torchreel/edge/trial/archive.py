"""Zip archives, as torch writes them, against their own checksums: torch itself does not look at these."""

from __future__ import annotations

import zipfile
from pathlib import Path

from torchreel.errors import EdgeError

_PIECE = 1 << 20


def check_archive(path: Path) -> None:
    """Raise EdgeError if the content of an archive is not what was written. What is no archive is left to others."""
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                _check_entry(path, archive, entry)
    except EdgeError:
        raise
    except Exception:  # an archive that only torch's reader can open, or none at all: the loader tells it
        return


def _check_entry(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    if entry.CRC == 0 or entry.file_size == 0:  # torch can be told to write none
        return
    try:
        with archive.open(entry) as file:
            while file.read(_PIECE):
                pass
    except Exception as error:
        name = entry.filename if entry.filename.isprintable() else ascii(entry.filename)
        raise EdgeError(
            f"{path} is damaged: {name} in it is not what was written ({_reason(error)}). Copy it again, or save it "
            "again."
        ) from None


def _reason(error: Exception) -> str:
    return "its checksum differs" if isinstance(error, zipfile.BadZipFile) else f"{type(error).__name__}"
