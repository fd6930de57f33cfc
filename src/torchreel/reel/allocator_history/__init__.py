"""The history of an allocator, from the tables of a reel: its events, and the blocks that they make and free."""

from torchreel.reel.allocator_history.blocks import OLD, Blocks, Lives
from torchreel.reel.allocator_history.history import AllocatorHistory, OutOfMemory, histories, histories_of

__all__ = ["OLD", "AllocatorHistory", "Blocks", "Lives", "OutOfMemory", "histories", "histories_of"]
