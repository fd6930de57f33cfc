"""The tape: a function's ops, below autograd, as a program that runs again without the function.

Names are imported when they are asked for: the rules and the generator need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchreel.tape import rules
    from torchreel.tape.capture.trace import trace, tracing
    from torchreel.tape.difference import diff
    from torchreel.tape.replay.load import load_tape
    from torchreel.tape.tape import Tape

__all__ = ["Tape", "diff", "load_tape", "rules", "trace", "tracing"]

_FILES = {
    "Tape": "tape",
    "diff": "difference",
    "load_tape": "replay.load",
    "trace": "capture.trace",
    "tracing": "capture.trace",
}


def __getattr__(name: str) -> Any:
    if name == "rules":
        return importlib.import_module("torchreel.tape.rules")
    if name not in _FILES:
        raise AttributeError(f"module 'torchreel.tape' has no attribute {name!r}")
    return getattr(importlib.import_module(f"torchreel.tape.{_FILES[name]}"), name)
