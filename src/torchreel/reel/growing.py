"""A reel that is still being recorded, opened again and again: each time at the cost of what is new.

A process that records is read on where the last reading ended. Its calls appear when they end. When it closes
its part, or dies, the part is opened as that of any reel. Processes keep their index, and new ones come last: so the
index of one may be another than when the reel is opened at the end.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pyarrow as pa

from torchreel.errors import ReelError
from torchreel.reel import spool
from torchreel.reel.joining import read_claim
from torchreel.reel.meta import read_meta
from torchreel.reel.reel import Process, Reel, process_directories
from torchreel.reel.stable_path import StablePath


class LivingProcess(Process):
    """The part of a process that records, as it was at one moment."""

    def __init__(self, directory: Path, index: int, content: spool.GrowingSpool) -> None:
        self._stable_path = StablePath(directory)
        self.index = index
        self.name = directory.name
        self._extent = None
        self._names = frozenset()
        self._claim = None
        self.spooled = self.in_memory = True
        self.content = content
        self._rows = content.rows()

    @functools.cached_property
    def _decoded(self) -> dict[str, pa.Table]:
        return self.content.tables(self._rows)


class GrowingReel:
    """Opens a reel each time that it has grown."""

    def __init__(self, reel: Reel) -> None:
        self._path = reel.path
        self._parts: dict[str, Process] = {part.name: part for part in reel.parts}
        self._next = max((part.index for part in reel.parts), default=-1) + 1
        self.reel = reel

    @property
    def is_growing(self) -> bool:
        """Whether a process records, or one that does may come."""
        return self.reel.meta.get("state") == "recording" or any(part.spooled for part in self.reel.parts)

    def refresh(self) -> bool:
        """Look for what is new; whether anything is. `reel` is then another one, and the old one stays as it was."""
        if not self.is_growing:
            return False
        meta = read_meta(self._path)
        changed = meta != self.reel.meta
        for directory, names in sorted(process_directories(self._path).items()):
            before = self._parts.get(directory.name)
            index = self._next if before is None else before.index
            now = _refreshed(directory, names, index, before)
            if now is None or now is before:
                continue
            self._parts[directory.name] = now
            self._next = max(self._next, index + 1)
            changed = True
        if changed:
            parts = sorted(self._parts.values(), key=lambda part: part.index)
            self.reel = Reel.of_parts(self._path, meta, parts)
        return changed


def _refreshed(directory: Path, names: frozenset[str], index: int, before: Process | None) -> Process | None:
    """The part as it is now; `before` itself if nothing changed, None if it cannot be read yet."""
    if before is not None and not before.spooled:
        return before
    try:
        if isinstance(before, LivingProcess):
            if spool.exists(directory) and _lives(directory):
                return LivingProcess(directory, index, before.content) if before.content.advance() else before
        elif spool.exists(directory) and _lives(directory):
            return LivingProcess(directory, index, spool.GrowingSpool(directory))
        elif before is not None and spool.exists(directory):
            return before  # it died, and was read wholly
        return Process(directory, names, index, keep_open=True)
    except ReelError:
        # It may be closing its part at this moment: the next look shows.
        return before


def _lives(directory: Path) -> bool:
    """Whether the process that records there may go on; of another machine's that is not known."""
    claim = read_claim(directory)
    return claim is None or claim.process is None or claim.process.may_be_alive()
