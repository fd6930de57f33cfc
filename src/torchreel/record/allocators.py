"""Which allocator gives the memory of CPU tensors: torch's own, or torchreel's caching one."""

from __future__ import annotations

import os

from torchreel import _core
from torchreel.errors import OptionError

VARIABLE = "TORCHREEL_ALLOCATOR"
DECAY_SECONDS = 10.0


def choose_allocator(
    name: str, *, huge_pages: bool = True, thread_caches: bool = True, decay: float = DECAY_SECONDS
) -> None:
    """Let new CPU tensors come from 'caching' or 'system'; those that are there go back to where they came from."""
    if isinstance(decay, bool) or not isinstance(decay, int | float) or not 0 <= decay <= 86_400:
        raise OptionError(f"decay={decay!r} is not a time: give seconds, from 0 (never) to 86400.")
    decay_ms = max(1, round(decay * 1000)) if decay else 0
    _core.cache_allocations(name == "caching", huge_pages, thread_caches, decay_ms)


def choose_by_environment() -> None:
    """Do what TORCHREEL_ALLOCATOR says, if it says anything."""
    name = os.environ.get(VARIABLE, "")
    if name not in ("", "system", "caching"):
        raise OptionError(f"{VARIABLE}={name} is not known: it is 'caching' or 'system'.")
    if name:
        choose_allocator(name)
