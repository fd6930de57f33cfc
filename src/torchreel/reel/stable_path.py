"""A path that goes on leading to the same place when the program goes to another directory."""

from __future__ import annotations

import os
from pathlib import Path


class StablePath:
    """`path` is as it was named, and the whole path once it would lead elsewhere."""

    def __init__(self, named: Path) -> None:
        self._named = named
        self._began_in = None if named.is_absolute() else Path.cwd()

    @property
    def path(self) -> Path:
        if self._began_in is None or _is_here(self._began_in):
            return self._named
        return self.whole

    @property
    def whole(self) -> Path:
        return self._named if self._began_in is None else self._began_in / self._named


def _is_here(directory: Path) -> bool:
    try:
        return os.getcwd() == str(directory)  # noqa: PTH109 - asked for each file of a reel
    except OSError:  # the working directory is gone
        return False
