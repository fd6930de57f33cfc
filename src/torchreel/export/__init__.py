"""Reel -> foreign files, one file per format. Nothing here needs torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from torchreel.errors import OptionError
from torchreel.export import chrome, perfetto, snapshot, speedscope, stacks
from torchreel.export.output import Progress
from torchreel.export.stacks import write_stacks
from torchreel.reel import Reel

__all__ = ["FORMATS", "export", "write_stacks"]

# From the name of a format to the function that writes it.
FORMATS: dict[str, Callable[[Reel, Path, Progress], None]] = {
    "chrome": chrome.write,
    "perfetto": perfetto.write,
    "speedscope": speedscope.write,
    "stacks": stacks.write,
    "snapshot": snapshot.write,
}


def export(reel: Reel, path: str | os.PathLike[str], to: str, progress: Progress | None = None) -> None:
    """Write a reel in the format `to`. A path that ends in `.gz` is compressed.

    The file appears when it is complete: an error leaves nothing behind, and an older file as it was.
    `progress` is called now and then with the number of ops written and the number in all.
    """
    write = FORMATS.get(to)
    if write is None:
        raise OptionError(f"There is no format {to!r} to export to: choose one of {', '.join(FORMATS)}.")
    write(reel, Path(path), progress or (lambda done, total: None))
