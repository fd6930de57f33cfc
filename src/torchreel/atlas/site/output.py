"""Files of the site: written only where their bytes change; what is there is replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path


def write_text(site: Path, path: str, text: str) -> bool:
    """Write a file of the site, unless it is there with the same bytes. Returns whether it was written."""
    return write_bytes(site, path, text.encode("utf-8", "backslashreplace"))


def write_bytes(site: Path, path: str, data: bytes) -> bool:
    """Write a file of the site, unless it is there with the same bytes. Returns whether it was written.

    A file that is there is replaced as a whole. A new one is written in its place: of a run that is ended before its
    time the next one knows nothing, and so writes all files again.
    """
    target = f"{site}/{path}"
    try:
        descriptor = os.open(target, _NEW, 0o666)
    except FileNotFoundError:  # the first of its folder
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, _NEW, 0o666)
    except FileExistsError:
        return _replaced(Path(target), data)
    try:
        _write(descriptor, data)
    except OSError:
        Path(target).unlink()
        raise
    finally:
        os.close(descriptor)
    return True


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def _write(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):  # a single call writes less than 2 GiB, and less than that where the disk is full
        written += os.write(descriptor, memoryview(data)[written:])


def _replaced(target: Path, data: bytes) -> bool:
    """Put a file in the place of one that is there."""
    try:
        # The size tells most files apart without reading them.
        if target.stat().st_size == len(data) and target.read_bytes() == data:
            return False
    except OSError:
        pass
    beside = target.with_name(target.name + ".part") if len(target.name) < 240 else target.with_name(".part")
    beside.write_bytes(data)
    beside.replace(target)
    return True


def remove(site: Path, path: str) -> None:
    """Remove a file of the site, and folders that are empty then."""
    target = site / path
    target.unlink(missing_ok=True)
    for folder in target.parents:
        if folder == site or site not in folder.parents:
            break
        try:
            folder.rmdir()
        except OSError:
            break
