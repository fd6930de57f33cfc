"""simulate_pinned: what PyTorch's allocator of pinned host memory would do with a program.

A request is rounded up to a power of two, unless it is larger than an option says. Freed blocks wait in a list for each
power of two, and the one that was freed last is taken first. Blocks are never split, and there is no limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from torchreel.errors import OptionError
from torchreel.reel.allocator_history.actions import ALLOC, EMPTY_CACHE, FREE, FREE_COMPLETED, RELEASE_POOL
from torchreel.simulator.conf import Conf, parse
from torchreel.simulator.event_list import Event, request_trace_of_list
from torchreel.simulator.option_string import MIB

_PARTS = ("current", "peak", "allocated", "freed")


@dataclass(frozen=True)
class PinnedSimulation:
    """What the allocator would have done. Sizes are bytes."""

    peak_allocated: int
    """The most that was pinned at once, in use or cached."""
    peak_active: int
    peak_requested: int
    stats: dict[str, int]
    """By their names in torch.cuda.host_memory_stats; peaks are exact here, which torch's are not."""
    undersized: tuple[int, ...] = ()
    """Places of requests that torch 2.13 would give a block which is too small: it does not compare the sizes of
    blocks that it did not round."""


@dataclass
class _Stat:
    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def change(self, amount: int) -> None:
        self.current += amount
        self.peak = max(self.peak, self.current)
        if amount > 0:
            self.allocated += amount
        else:
            self.freed -= amount


@dataclass
class _PinnedAllocator:
    most_rounded: int | None
    most_cached: int | None
    allocations: _Stat = field(default_factory=_Stat)
    allocated_bytes: _Stat = field(default_factory=_Stat)
    active_requests: _Stat = field(default_factory=_Stat)
    active_bytes: _Stat = field(default_factory=_Stat)
    requested: _Stat = field(default_factory=_Stat)
    lists: dict[int, dict[int, list[int]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    undersized: list[int] = field(default_factory=list)

    def size_of(self, requested: int) -> int:
        limits = [limit for limit in (self.most_rounded, self.most_cached) if limit is not None]
        return requested if any(requested > limit for limit in limits) else 1 << _bucket(requested)

    def alloc(self, requested: int, pool: int, index: int) -> int:
        """The size of the block."""
        size = self.size_of(requested)
        free = self.lists[pool][_bucket(size)]
        if free:
            if free[-1] < size:
                self.undersized.append(index)
            size = free.pop()
        else:
            self.allocations.change(1)
            self.allocated_bytes.change(size)
        self.active_requests.change(1)
        self.active_bytes.change(size)
        self.requested.change(requested)
        return size

    def free(self, size: int, requested: int, pool: int) -> None:
        self.active_requests.change(-1)
        self.active_bytes.change(-size)
        self.requested.change(-requested)
        if self.most_cached is not None and size > self.most_cached:
            self._unpin([size])
        else:
            self.lists[pool][_bucket(size)].append(size)

    def empty(self, pools: Iterable[int]) -> None:
        for pool in pools:
            for free in self.lists[pool].values():
                self._unpin(free)
                free.clear()

    def _unpin(self, sizes: list[int]) -> None:
        for size in sizes:
            self.allocations.change(-1)
            self.allocated_bytes.change(-size)

    def stats(self) -> dict[str, int]:
        names = ("allocations", "allocated_bytes", "active_requests", "active_bytes")
        stats = {f"{name}.{part}": getattr(getattr(self, name), part) for name in names for part in _PARTS}
        stats["num_host_alloc"], stats["num_host_free"] = self.allocations.allocated, self.allocations.freed
        return dict(sorted(stats.items()))


def simulate_pinned(events: Iterable[Event], conf: str | Conf | None = None) -> PinnedSimulation:
    """Run a program through PyTorch's allocator of pinned host memory, as it is in torch 2.13.

    `events` are those of simulate(), as a list: `alloc`, `free` (or `free_requested` and, later, `free_completed`, for
    a block that a stream still uses), `empty_cache` and `release_pool`. Snapshots up to torch 2.13 have none of pinned
    memory. `conf` may have pinned_max_round_threshold_mb and pinned_max_cached_size_mb; other options change nothing
    here, but for pinned_reserve_segment_size_mb, which is refused.
    """
    options = dict((parse(conf) if isinstance(conf, str) else conf or Conf()).pinned)
    if "pinned_reserve_segment_size_mb" in options:
        raise OptionError(
            "pinned_reserve_segment_size_mb cannot be simulated: how blocks lie in the reserved segment is not "
            "modelled. Leave it out."
        )
    allocator = _PinnedAllocator(
        _bytes(options, "pinned_max_round_threshold_mb"), _bytes(options, "pinned_max_cached_size_mb")
    )
    requests = request_trace_of_list(events)
    columns = (requests.actions, requests.handles, requests.sizes, requests.pool_of, requests.ids)
    live: dict[int, tuple[int, int, int]] = {}
    for action, handle, size, pool, index in zip(*(column.tolist() for column in columns), strict=True):
        if action == ALLOC:
            live[handle] = (allocator.alloc(size, pool, index), size, pool)
        elif action in (FREE, FREE_COMPLETED):
            allocator.free(*live.pop(handle))
        elif action == EMPTY_CACHE:
            allocator.empty(list(allocator.lists))
        elif action == RELEASE_POOL:
            allocator.empty([pool])
    return PinnedSimulation(
        allocator.allocated_bytes.peak,
        allocator.active_bytes.peak,
        allocator.requested.peak,
        allocator.stats(),
        tuple(allocator.undersized),
    )


def _bytes(options: dict[str, str], name: str) -> int | None:
    return int(options[name]) * MIB if name in options else None


def _bucket(size: int) -> int:
    """The power of two that a size is rounded up to."""
    return (size - 1).bit_length()
