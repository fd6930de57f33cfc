"""The caching allocator for CPU tensors: freed memory is kept for the next tensor."""

from __future__ import annotations

from torchreel import _core
from torchreel.errors import OptionError, RecorderError
from torchreel.record.allocators import DECAY_SECONDS, choose_allocator
from torchreel.record.options import parse_size

# More than any machine has.
_MOST_BYTES = 2**62


def use_caching_allocator(
    enabled: bool = True, *, huge_pages: bool = True, thread_caches: bool = True, decay: float = DECAY_SECONDS
) -> None:
    """Take the memory of new CPU tensors from a cache of freed memory, in all threads, from now on.

    huge_pages     ask for huge pages for segments of 20 MiB and more
    thread_caches  keep freed blocks of up to 1 MiB with the thread that freed them, up to 8 MiB of them
    decay          seconds after which unused pages go back to the system; 0: never, until empty_cache()

    use_caching_allocator(False) lets new tensors come from the system again; those of the cache go back to it.
    """
    name = "caching" if enabled else "system"
    choose_allocator(name, huge_pages=huge_pages, thread_caches=thread_caches, decay=decay)


def empty_cache() -> int:
    """Give unused memory of the caching allocator back to the system. Returns the bytes that went."""
    return _core.empty_cache()


def set_limit(limit: int | str | None) -> None:
    """The most that the caching allocator may reserve: bytes, a text like "8GiB", or None for no limit.

    A tensor that does not fit raises torch.OutOfMemoryError, which names the largest holders.
    """
    if not _core.caches_allocations():
        raise RecorderError(
            "A limit needs the caching allocator: call torchreel.memory.use_caching_allocator() before set_limit()."
        )
    size = 0 if limit is None else min(parse_size(limit), _MOST_BYTES)
    if limit is not None and size < 2 * 2**20:
        raise OptionError(f"A limit of {limit!r} holds no segment: give at least 2MiB, or None for no limit.")
    _core.set_limit(size)
