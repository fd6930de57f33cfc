"""Memory of a running program: its history and snapshots, and a caching allocator for CPU tensors.

import torchreel
torchreel.memory.record_history()              # from now on, CPU tensors (and CUDA's, where there is CUDA)
train_step(batch)
torchreel.memory.dump("snapshot.pickle")       # for `torchreel memory`, torch.cuda._memory_viz, pytorch.org/memory_viz

torchreel.memory.use_caching_allocator()       # freed CPU memory is kept and used again
"""

import torch  # noqa: F401  its libraries first: the native core is linked against them

from torchreel.memory.caching import empty_cache, set_limit, use_caching_allocator
from torchreel.memory.history import get_metadata, on_out_of_memory, record_history, set_metadata
from torchreel.memory.observers import MemoryEvent, Observer, observe, untold_events
from torchreel.memory.snapshots import allocation_traceback, dump, snapshot
from torchreel.memory.stats import (
    memory_stats,
    memory_stats_as_nested_dict,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)

__all__ = [
    "MemoryEvent",
    "Observer",
    "allocation_traceback",
    "dump",
    "empty_cache",
    "get_metadata",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "observe",
    "on_out_of_memory",
    "record_history",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_limit",
    "set_metadata",
    "snapshot",
    "untold_events",
    "use_caching_allocator",
]
