"""Questions about a reel, one per file, each answered with a table. Nothing here needs torch."""

import importlib
import sys
import warnings
from types import ModuleType
from typing import Any

from torchreel.analyze.diff import diff
from torchreel.analyze.findings import Finding, findings
from torchreel.analyze.source.lines import lines
from torchreel.analyze.source.states import source_states
from torchreel.analyze.summary import Summary, summary
from torchreel.analyze.time.averages import averages
from torchreel.analyze.time.device_busy import device_busy
from torchreel.analyze.time.phases import TypicalStep, phases, typical_step

__all__ = [
    "Finding",
    "Summary",
    "TypicalStep",
    "averages",
    "device_busy",
    "diff",
    "findings",
    "lines",
    "phases",
    "source_states",
    "summary",
    "typical_step",
]

# What docs called them until 0.6: they can still be imported, and are read from where they are now.
_MOVED = {
    "edge_compare": "edge.compare",
    "memory_device": "memory.model.device",
    "memory_fragmentation": "memory.fragmentation",
    "memory_holders": "memory.holders",
    "memory_leaks": "memory.leaks",
    "memory_peak": "memory.peak",
    "memory_report": "memory.report",
    "memory_spikes": "memory.spikes",
}


class _Moved(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        now = f"{__name__}.{_MOVED[self.__name__.rpartition('.')[2]]}"
        warnings.warn(f"{self.__name__} is {now} now: import that.", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(now), name)


def __getattr__(name: str) -> ModuleType:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return sys.modules[f"{__name__}.{name}"]


sys.modules.update({f"{__name__}.{name}": _Moved(f"{__name__}.{name}") for name in _MOVED})
