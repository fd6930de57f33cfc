"""Memory of a running program: its history and snapshots, and a caching allocator for CPU tensors.

import torchreel
torchreel.memory.record_history()              # from now on, CPU tensors (and CUDA's, where there is CUDA)
train_step(batch)
torchreel.memory.dump("snapshot.pickle")       # for `torchreel memory`, torch.cuda._memory_viz, pytorch.org/memory_viz

torchreel.memory.use_caching_allocator()       # freed CPU memory is kept and used again
"""

import torch  # noqa: F401  its libraries first: the native core is linked against them

from torchreel.memory.caching import (
    empty_cache,
    memory_stats,
    reset_peak_memory_stats,
    set_limit,
    use_caching_allocator,
)
from torchreel.memory.history import on_out_of_memory, record_history, set_metadata
from torchreel.memory.snapshots import dump, snapshot

__all__ = [
    "dump",
    "empty_cache",
    "memory_stats",
    "on_out_of_memory",
    "record_history",
    "reset_peak_memory_stats",
    "set_limit",
    "set_metadata",
    "snapshot",
    "use_caching_allocator",
]
