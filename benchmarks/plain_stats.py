"""The counters of torch.cuda.memory_stats, for the allocator in plain Python."""

from __future__ import annotations

_BY_POOL = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
_COUNTS = (
    "num_alloc_retries",
    "num_ooms",
    "num_sync_all_streams",
    "num_device_alloc",
    "num_device_free",
    "num_oom_rejections",
)


class Stat:
    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def add(self, amount: int) -> None:
        self.current += amount
        self.allocated += amount
        if self.current > self.peak:
            self.peak = self.current

    def remove(self, amount: int) -> None:
        self.current -= amount
        self.freed += amount


class Stats:
    def __init__(self) -> None:
        self.by_pool = {name: (Stat(), Stat(), Stat()) for name in _BY_POOL}  # all, small, large
        self.private_reserved: dict[int, tuple[Stat, Stat, Stat]] = {}
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.oversize_allocations = Stat()
        self.oversize_segments = Stat()

    @property
    def reserved(self) -> int:
        return self.by_pool["reserved_bytes"][0].current

    def add(self, name: str, small: bool, amount: int) -> None:
        stats = self.by_pool[name]
        stats[0].add(amount)
        stats[1 if small else 2].add(amount)

    def remove(self, name: str, small: bool, amount: int) -> None:
        stats = self.by_pool[name]
        stats[0].remove(amount)
        stats[1 if small else 2].remove(amount)

    def change(self, name: str, small: bool, amount: int) -> None:
        if amount > 0:
            self.add(name, small, amount)
        elif amount < 0:
            self.remove(name, small, -amount)

    def reserve(self, owner: int, small: bool, amount: int) -> None:
        """More bytes, or fewer, of a pool by its index; 0 is the default one."""
        self.change("reserved_bytes", small, amount)
        if owner == 0:
            return
        stats = self.private_reserved.setdefault(owner, (Stat(), Stat(), Stat()))
        for stat in (stats[0], stats[1 if small else 2]):
            stat.add(amount) if amount > 0 else stat.remove(-amount)

    def handed_out(self, small: bool, size: int, requested: int) -> None:
        self.add("allocation", small, 1)
        self.add("allocated_bytes", small, size)
        self.add("active", small, 1)
        self.add("active_bytes", small, size)
        self.add("requested_bytes", small, requested)

    def count(self, name: str) -> None:
        self.counts[name] += 1

    def named(self) -> dict[str, int]:
        """By their names in torch.cuda.memory_stats."""
        by_private_pool = {f"reserved_bytes_by_private_pools.{n}": stats for n, stats in self.private_reserved.items()}
        stats = {
            f"{name}.{pool}": stat
            for name, of_pools in (self.by_pool | by_private_pool).items()
            for pool, stat in zip(("all", "small_pool", "large_pool"), of_pools, strict=True)
        }
        stats["oversize_allocations"] = self.oversize_allocations
        stats["oversize_segments"] = self.oversize_segments
        named = {f"{name}.{key}": getattr(stat, key) for name, stat in stats.items() for key in Stat.__slots__}
        return named | self.counts
