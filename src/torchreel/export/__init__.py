"""Reel or tape -> foreign files, one file or folder per format. Nothing here needs torch."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any

from torchreel.errors import OptionError
from torchreel.export.formats import ALL, FORMATS, TAPE_FORMATS
from torchreel.export.output import Progress, target_of

if TYPE_CHECKING:
    from torchreel.program import Program
    from torchreel.reel import Reel

__all__ = ["FORMATS", "TAPE_FORMATS", "export"]


def export(
    source: Reel | Program,
    path: str | os.PathLike[str] | IO[Any],
    to: str,
    progress: Progress | None = None,
    **options: Any,
) -> None:
    """Write a reel, or the program of a tape, in the format `to`. A path that ends in `.gz` is compressed.

    The file appears when it is complete: an error leaves nothing behind, and an older file as it was.
    In the place of a path an open stream of bytes, or of text but for `perfetto` and `snapshot`, is written as it goes.
    `progress` is called now and then with the number of ops written and the number in all.

    `html` takes options: `budget`, the most bytes that the file may have ("25MB"); `sources=False` leaves out the texts
    of source files; `other` is a second reel to compare with.
    """
    from torchreel.reel import Reel

    if to not in ALL:
        raise OptionError(f"There is no format {to!r} to export to: choose one of {', '.join(ALL)}.")
    if to in FORMATS and not isinstance(source, Reel):
        raise OptionError(f"A tape cannot be exported to {to!r}: choose one of {', '.join(TAPE_FORMATS)}.")
    unknown = [name for name in options if name not in ALL[to].options]
    if unknown:
        known = ", ".join(ALL[to].options) or "none"
        raise OptionError(f"{to!r} has no option {unknown[0]!r}: it has {known}.")
    ALL[to].write(source, target_of(path), progress or (lambda done, total: None), **options)
