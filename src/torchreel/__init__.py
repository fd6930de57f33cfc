"""Record a PyTorch run once; then see it, size it, replay it.

Each name is imported when it is first asked for: opening a reel needs no torch, and the command's help needs no Arrow.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from torchreel import errors
from torchreel._version import __version__

if TYPE_CHECKING:
    from torchreel import allocator, atlas, graphs, memory, tape
    from torchreel.analyze.gpu.answers import gpu
    from torchreel.analyze.time.averages import averages
    from torchreel.edge import EdgeProfiler, current_edge_profiler
    from torchreel.graphs import graphed, mark_step_begin
    from torchreel.record import (
        Recorder,
        RecordOptions,
        current_recorder,
        mark,
        range,
        record,
        schedule,
        step,
    )
    from torchreel.reel import Reel, load
    from torchreel.tape import Tape, load_tape, trace, tracing

__all__ = [
    "EdgeProfiler",
    "RecordOptions",
    "Recorder",
    "Reel",
    "Tape",
    "__version__",
    "allocator",
    "atlas",
    "averages",
    "current_edge_profiler",
    "current_recorder",
    "errors",
    "gpu",
    "graphed",
    "graphs",
    "load",
    "load_tape",
    "mark",
    "mark_step_begin",
    "memory",
    "range",
    "record",
    "schedule",
    "step",
    "tape",
    "trace",
    "tracing",
]

# Where each name is; those of a file that has the name of a function are taken from the file itself.
_ROOMS = {
    "EdgeProfiler": "edge",
    "current_edge_profiler": "edge",
    "Reel": "reel",
    "load": "reel",
    "averages": "analyze",
    "gpu": "analyze.gpu.answers",
    "graphed": "graphs.call.entry",
    "mark_step_begin": "graphs.steps",
    "RecordOptions": "record",
    "Recorder": "record",
    "current_recorder": "record",
    "mark": "record",
    "range": "record",
    "record": "record",
    "schedule": "record",
    "step": "record",
    "Tape": "tape",
    "load_tape": "tape",
    "trace": "tape.capture.trace",
    "tracing": "tape.capture.trace",
}


# Names that are rooms themselves.
_MODULES = ("allocator", "atlas", "graphs", "memory", "tape")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"torchreel.{name}")
    if name not in _ROOMS:
        raise AttributeError(f"module 'torchreel' has no attribute {name!r}")
    return getattr(importlib.import_module(f"torchreel.{_ROOMS[name]}"), name)


if os.environ.get("TORCHREEL_ALLOCATOR"):
    try:
        importlib.import_module("torchreel.record.allocators").choose_by_environment()
    except errors.TorchreelError as error:  # of the one who started the program, so not an error of the program
        raise SystemExit(f"Error: {error}") from None
