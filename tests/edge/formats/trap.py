"""A pickle that does something when it is loaded without limits."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any


class _Trap:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return open, (str(self._path), "w")


def trap(path: Path) -> bytes:
    """Whoever executes it makes a file there."""
    return pickle.dumps(_Trap(path), protocol=2)
