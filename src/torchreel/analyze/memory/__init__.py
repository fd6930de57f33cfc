"""Questions about memory, one per file. Each takes a DeviceMemory of `device_memories(reel)`."""

from torchreel.analyze.memory.bands import bands, blocks_in_view
from torchreel.analyze.memory.changes import changes
from torchreel.analyze.memory.fragmentation import fragmentation
from torchreel.analyze.memory.holders import holders
from torchreel.analyze.memory.leaks import leaks
from torchreel.analyze.memory.model.device import DeviceMemory, device_memories
from torchreel.analyze.memory.peak import peaks
from torchreel.analyze.memory.report import MemoryReport, memory_report, memory_reports
from torchreel.analyze.memory.segments import allocator_state
from torchreel.analyze.memory.spikes import spikes

__all__ = [
    "DeviceMemory",
    "MemoryReport",
    "allocator_state",
    "bands",
    "blocks_in_view",
    "changes",
    "device_memories",
    "fragmentation",
    "holders",
    "leaks",
    "memory_report",
    "memory_reports",
    "peaks",
    "spikes",
]
