"""Record a PyTorch run once; then see it, size it, replay it.

What records needs torch, and imports it only when it is asked for: opening a reel needs none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from torchreel._version import __version__
from torchreel.analyze import averages
from torchreel.reel import Reel, load

if TYPE_CHECKING:
    from torchreel.record import Recorder, RecordOptions, mark, range, record, schedule

__all__ = [
    "RecordOptions",
    "Recorder",
    "Reel",
    "__version__",
    "averages",
    "load",
    "mark",
    "range",
    "record",
    "schedule",
]

_RECORDING = {"RecordOptions", "Recorder", "mark", "range", "record", "schedule"}


def __getattr__(name: str) -> Any:
    if name in _RECORDING:
        return getattr(importlib.import_module("torchreel.record"), name)
    raise AttributeError(f"module 'torchreel' has no attribute {name!r}")
