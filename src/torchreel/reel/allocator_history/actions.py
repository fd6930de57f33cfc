"""The actions of an allocator's history, as numbers. The native model of the simulator numbers them alike."""

from __future__ import annotations

ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "free",
    "empty_cache",
    "release_pool",
    "preexisting",
    "other",
)
CODES = {name: code for code, name in enumerate(ACTIONS)}
ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM = range(8)
FREE, EMPTY_CACHE, RELEASE_POOL, PREEXISTING, OTHER = range(8, 13)
MAKES_BLOCK = (ALLOC, PREEXISTING)
FREES_BLOCK = (FREE, FREE_COMPLETED)
RESERVES = (SEGMENT_ALLOC, SEGMENT_MAP)
RELEASES = (SEGMENT_FREE, SEGMENT_UNMAP)
SEGMENT_EVENTS = (*RESERVES, *RELEASES)
