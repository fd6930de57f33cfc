"""Files of the site: written only where their bytes change, and never half."""

from __future__ import annotations

from pathlib import Path


def write_text(site: Path, path: str, text: str) -> bool:
    """Write a file of the site, unless it is there with the same bytes. Returns whether it was written."""
    return write_bytes(site, path, text.encode("utf-8", "backslashreplace"))


def write_bytes(site: Path, path: str, data: bytes) -> bool:
    target = site / path
    try:
        # The size tells most files apart without reading them.
        if target.stat().st_size == len(data) and target.read_bytes() == data:
            return False
    except OSError:
        pass
    beside = target.with_name(target.name + ".part") if len(target.name) < 240 else target.with_name(".part")
    try:
        beside.write_bytes(data)
    except FileNotFoundError:  # the first of its folder
        target.parent.mkdir(parents=True, exist_ok=True)
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
