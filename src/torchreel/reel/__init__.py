"""The reel: tables, the file, and how both are read. Nothing here needs torch.

Each name is imported when it is first asked for: who wants to read a source file needs no Arrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchreel.reel.reel import Reel, load
    from torchreel.reel.tables import TABLES

__all__ = ["TABLES", "Reel", "load"]

_FILES = {"TABLES": "tables", "Reel": "reel", "load": "reel"}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
