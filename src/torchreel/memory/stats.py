"""Counters of memory under the names of torch.cuda.memory_stats."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

import torch

from torchreel import _core
from torchreel.errors import OptionError

# Names of torch.cuda.memory_stats, and what counts it here. A block of a CPU tensor is active as long as it is
# allocated: no stream uses it any longer.
_KINDS = {
    "allocation": "blocks",
    "active": "blocks",
    "allocated_bytes": "bytes",
    "active_bytes": "bytes",
    "requested_bytes": "requested",
    "segment": "segments",
    "reserved_bytes": "reserved",
    "inactive_split": "split_blocks",
    "inactive_split_bytes": "split_bytes",
}
_POOLS = ("small_pool", "large_pool", "all")
_PARTS = ("current", "peak", "allocated", "freed")
# What the allocators of CPU tensors do not have: blocks too large to be split, streams to wait for, a policy that
# refuses before it tries.
_NOTHING = (
    *(f"oversize_{what}.{part}" for what in ("allocations", "segments") for part in _PARTS),
    "num_sync_all_streams",
    "num_oom_rejections",
)

Stat = tuple[int, int, int, int]
# What reset_accumulated_memory_stats() takes off.
_past: dict[str, int] = {}


def memory_stats(device: torch.device | str | int | None = None) -> OrderedDict[str, int]:
    """Counters of the memory of CPU tensors under the names of torch.cuda.memory_stats.

    They count the caching allocator, tensors of the system's allocator as far as a history knows them
    (record_history()), and private pools of graphs. `allocated_bytes` counts whole blocks, `requested_bytes` what was
    asked for. Peaks are since the start, or since reset_peak_memory_stats(). Without the caching allocator and without
    a history nothing is known of the system's allocator, and a warning says so.
    """
    _check_device(device)
    if not _core.caches_allocations() and not _core.history_on():
        warnings.warn(
            "memory_stats() does not count tensors of the system's allocator without a history: call "
            "torchreel.memory.use_caching_allocator() or torchreel.memory.record_history() before.",
            stacklevel=2,
        )
    stats = _all_stats()
    for name, amount in _past.items():
        stats[name] -= amount
    return OrderedDict(sorted(stats.items()))


def memory_stats_as_nested_dict(device: torch.device | str | int | None = None) -> dict[str, Any]:
    """memory_stats() as torch.cuda.memory_stats_as_nested_dict has it."""
    nested: dict[str, Any] = {"reserved_bytes_by_private_pools": {}}
    for name, value in memory_stats(device).items():
        *path, last = name.split(".")
        inner = nested
        for index, part in enumerate(path):
            is_pool = index == 1 and path[0] == "reserved_bytes_by_private_pools"
            key: Any = tuple(int(number) for number in part.split("_")) if is_pool else part
            inner = inner.setdefault(key, {})
        inner[last] = value
    return nested


def reset_peak_memory_stats(device: torch.device | str | int | None = None) -> None:
    """Let the peaks of memory_stats() begin anew, at what is in use now."""
    _check_device(device)
    _core.reset_peaks()


def reset_accumulated_memory_stats(device: torch.device | str | int | None = None) -> None:
    """Let the sums of memory_stats() (allocated, freed, the numbers of retries and errors) begin anew, at 0."""
    _check_device(device)
    sums = (".allocated", ".freed")
    counters = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")
    _past.clear()
    _past.update({name: value for name, value in _all_stats().items() if name.endswith(sums) or name in counters})


def _all_stats() -> dict[str, int]:
    heap, tally = _core.heap_stats(), _core.tally_stats()
    stats: dict[str, int] = dict.fromkeys(_NOTHING, 0)
    for name, kind in _KINDS.items():
        _put(stats, name, _with_heap(tally[kind], heap, kind))
    for pool, reserved in _core.private_pool_stats().items():
        _put(stats, f"reserved_bytes_by_private_pools.0_{pool}", [(0, 0, 0, 0), reserved, reserved])
    stats["max_split_size"] = -1
    stats["num_alloc_retries"] = heap["retries"]
    stats["num_ooms"] = heap["ooms"]
    stats["num_device_alloc"] = heap["segment_allocs"]
    stats["num_device_free"] = heap["segment_frees"]
    stats["thread_cached_bytes"] = heap["thread_cached"]
    stats["purged_bytes"] = heap["purged"]
    stats["limit"] = heap["limit"]
    return stats


def _with_heap(tally: list[Stat], heap: dict[str, Any], kind: str) -> list[Stat]:
    """The heap keeps the sums of its blocks by itself, by thread."""
    if kind not in heap["small"]:
        return tally
    small, large = heap["small"][kind], heap["large"][kind]
    came = [small[0], large[0], small[0] + large[0]]
    went = [small[1], large[1], small[1] + large[1]]
    return [
        (current, peak, allocated + more, freed + less)
        for (current, peak, allocated, freed), more, less in zip(tally, came, went, strict=True)
    ]


def _put(stats: dict[str, int], name: str, by_pool: list[Stat]) -> None:
    for pool, stat in zip(_POOLS, by_pool, strict=True):
        for part, value in zip(_PARTS, stat, strict=True):
            stats[f"{name}.{pool}.{part}"] = value


def _check_device(device: torch.device | str | int | None) -> None:
    if device is None:
        return
    try:
        kind = torch.device(device).type
    except (RuntimeError, TypeError):
        raise OptionError(f"device={device!r} is not a device: give 'cpu', or nothing.") from None
    if kind != "cpu":
        raise OptionError(
            f"device={device!r} is not counted here: torchreel.memory knows CPU tensors, torch.{kind}.memory_stats() "
            "those of the device."
        )
