"""Private parts of torch.profiler and torch.autograd.profiler, which the drop-in subclasses, calls or stands for."""

from __future__ import annotations

from typing import Any

import torch
import torch.autograd.profiler as _autograd_profiler
from torch._C._profiler import _EventType as EventType
from torch._C._profiler import _ExtraFields_Allocation as AllocationFields
from torch._C._profiler import _ExtraFields_PyCall as PythonCallFields
from torch._C._profiler import _ExtraFields_PyCCall as CCallFields
from torch._C._profiler import _ExtraFields_TorchOp as OpFields
from torch.autograd.profiler import _ProfilerStats as ProfilerStats  # what torch logs about a profiler's run
from torch.autograd.profiler_util import EventList
from torch.profiler import _KinetoProfile as KinetoProfile  # the base class of torch.profiler.profile
from torch.profiler.profiler import _NumpyEncoder as NumpyEncoder  # a JSON encoder that knows numbers of NumPy

__all__ = [
    "AllocationFields",
    "CCallFields",
    "EventType",
    "KinetoProfile",
    "NumpyEncoder",
    "OpFields",
    "ProfilerStats",
    "PythonCallFields",
    "distributed_info",
    "is_hidden_event",
    "is_shown_frame",
    "let_torch_open_ranges",
    "mark_tree_as_built",
    "metadata_of_trace",
    "shown_name",
    "torch_profiler_is_on",
    "warn_once",
]

# Warns about each text once per process.
warn_once = torch.profiler.profiler._warn_once

# Whether event lists leave out an op, by its name.
is_hidden_event = torch.autograd.profiler_util._filter_name

# Whether event lists show a frame of a stack, as text.
is_shown_frame = torch.autograd.profiler_util._filter_stack_entry

# The name under which event lists show an op: (name, with_wildcard).
shown_name = torch.autograd.profiler_util._rewrite_name

# Whether torch's own code opens its ranges: compiled code and the compiler, above all.
let_torch_open_ranges = _autograd_profiler._set_is_profiler_enabled

# Whether a profiler of torch is on.
torch_profiler_is_on = torch.autograd._profiler_enabled


def mark_tree_as_built(events: EventList) -> None:
    """Tell an event list that its events know their parents and children."""
    events._tree_built = True


def metadata_of_trace(profile: Any) -> dict[str, str]:
    """What add_metadata() and add_metadata_json() of a KinetoProfile have noted: JSON by key."""
    noted: dict[str, str] = profile._trace_metadata
    return noted


def distributed_info(profile: Any) -> Any:
    """What a KinetoProfile says about the process group, or None."""
    return profile._get_distributed_info()
