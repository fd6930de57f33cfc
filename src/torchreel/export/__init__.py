"""Reel or tape -> foreign files, one file per format. Nothing here needs torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO, Any

from torchreel.errors import OptionError
from torchreel.export import speedscope, stacks
from torchreel.export.chrome import chrome
from torchreel.export.chrome.chrome import TraceOptions
from torchreel.export.chrome.chrome import write_trace as write_chrome
from torchreel.export.execution_trace import execution_trace
from torchreel.export.output import Progress, Target, target_of
from torchreel.export.perfetto import perfetto
from torchreel.export.snapshot import snapshot
from torchreel.export.stacks import write_stacks
from torchreel.program import Program
from torchreel.reel import Reel

__all__ = ["FORMATS", "TAPE_FORMATS", "TraceOptions", "export", "write_chrome", "write_stacks"]

# From the name of a format to the function that writes it.
FORMATS: dict[str, Callable[[Reel, Target, Progress], None]] = {
    "chrome": chrome.write,
    "perfetto": perfetto.write,
    "speedscope": speedscope.write,
    "stacks": stacks.write,
    "snapshot": snapshot.write,
}


# The same of a tape, or of a reel that holds one.
TAPE_FORMATS: dict[str, Callable[[Reel | Program, Target, Progress], None]] = {
    "execution-trace": execution_trace.write,
}


def export(
    source: Reel | Program, path: str | os.PathLike[str] | IO[Any], to: str, progress: Progress | None = None
) -> None:
    """Write a reel, or the program of a tape, in the format `to`. A path that ends in `.gz` is compressed.

    The file appears when it is complete: an error leaves nothing behind, and an older file as it was.
    In the place of a path an open stream of bytes, or of text but for `perfetto` and `snapshot`, is written as it goes.
    `progress` is called now and then with the number of ops written and the number in all.
    """
    report = progress or (lambda done, total: None)
    if to in TAPE_FORMATS:
        TAPE_FORMATS[to](source, target_of(path), report)
        return
    if to not in FORMATS:
        known = ", ".join((*FORMATS, *TAPE_FORMATS))
        raise OptionError(f"There is no format {to!r} to export to: choose one of {known}.")
    if not isinstance(source, Reel):
        raise OptionError(f"A tape cannot be exported to {to!r}: choose one of {', '.join(TAPE_FORMATS)}.")
    FORMATS[to](source, target_of(path), report)
