"""Graph trees: a function's calls, recorded once and replayed without Python, without dispatch, in planned memory.

Names are imported when they are asked for: the generator of kernels needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchreel.graphs.call.entry import Graphed, graphed
    from torchreel.graphs.inductor.lowering import wait
    from torchreel.graphs.options import GraphOptions
    from torchreel.graphs.resetting import pool_bytes, reset
    from torchreel.graphs.skips import Skip
    from torchreel.graphs.steps import mark_step_begin
    from torchreel.graphs.tree import Status, status

__all__ = [
    "GraphOptions",
    "Graphed",
    "Skip",
    "Status",
    "graphed",
    "mark_step_begin",
    "pool_bytes",
    "reset",
    "status",
    "wait",
]

_FILES = {
    "GraphOptions": "options",
    "Graphed": "call.entry",
    "Skip": "skips",
    "Status": "tree",
    "graphed": "call.entry",
    "mark_step_begin": "steps",
    "pool_bytes": "resetting",
    "reset": "resetting",
    "status": "tree",
    "wait": "inductor.lowering",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module 'torchreel.graphs' has no attribute {name!r}")
    return getattr(importlib.import_module(f"torchreel.graphs.{_FILES[name]}"), name)
