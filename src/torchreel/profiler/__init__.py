"""torchreel in the words of torch.profiler: change the import, and nothing else of the program.

`profile` and `_KinetoProfile` are ours; all else that torch.profiler has is passed on as it is. The older
torch.autograd.profiler has its drop-in in torchreel.profiler.autograd.
"""

from __future__ import annotations

from typing import Any

import torch.profiler
from torch.profiler import (
    DeviceType,
    ExecutionTraceObserver,
    ProfilerAction,
    ProfilerActivity,
    kineto_available,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

from torchreel.profiler import autograd as autograd
from torchreel.profiler.kineto_profile import _KinetoProfile as _KinetoProfile
from torchreel.profiler.profiler import profile

__all__ = [
    "DeviceType",
    "ExecutionTraceObserver",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


def __getattr__(name: str) -> Any:
    """What programs import from torch.profiler although it is not public: _ExperimentalConfig, itt ..."""
    try:
        return getattr(torch.profiler, name)
    except AttributeError:
        raise AttributeError(f"module 'torchreel.profiler' has no attribute {name!r}") from None
