"""memory_stats(): the names of torch.cuda.memory_stats, and that each says what the snapshots say."""

from __future__ import annotations

import random
import threading
import warnings

import pytest
import torch

from tests.alone import alone
from tests.memory.state import live
from torchreel import memory
from torchreel.errors import OptionError

KIB, MIB = 2**10, 2**20
KINDS = (
    "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
    "inactive_split_bytes", "requested_bytes",
)  # fmt: skip
POOLS, PARTS = ("all", "small_pool", "large_pool"), ("current", "peak", "allocated", "freed")
# What torch.cuda.memory_stats has without private pools, as torch/csrc/cuda/Module.cpp of 2.13 writes it.
CUDA_KEYS = {
    *(f"{kind}.{pool}.{part}" for kind in KINDS for pool in POOLS for part in PARTS),
    *(f"oversize_{kind}.{part}" for kind in ("allocations", "segments") for part in PARTS),
    "num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free",
    "num_oom_rejections", "max_split_size",
}  # fmt: skip


def tensor_of(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8)


def assert_sums(stats: dict[str, int]) -> None:
    """Pools add up; what came less what went is there; no level is above its peak, no peak above what came."""
    for kind in KINDS:
        for part in ("current", "allocated", "freed"):
            both = stats[f"{kind}.small_pool.{part}"] + stats[f"{kind}.large_pool.{part}"]
            assert stats[f"{kind}.all.{part}"] == both, (kind, part)
        for pool in POOLS:
            current, peak, allocated, freed = (stats[f"{kind}.{pool}.{part}"] for part in PARTS)
            assert current == allocated - freed, (kind, pool)
            assert 0 <= current <= peak <= allocated, (kind, pool)
        parts = [stats[f"{kind}.{pool}.peak"] for pool in ("small_pool", "large_pool")]
        assert max(parts) <= stats[f"{kind}.all.peak"] <= sum(parts), kind
    for one, other in (("active", "allocation"), ("active_bytes", "allocated_bytes")):
        for pool in POOLS:
            for part in PARTS:
                assert stats[f"{one}.{pool}.{part}"] == stats[f"{other}.{pool}.{part}"]


@alone
def test_all_keys_of_cuda_are_there_and_nested() -> None:
    memory.use_caching_allocator()
    stats = memory.memory_stats()
    assert len(CUDA_KEYS) == 123
    assert set(stats) - CUDA_KEYS == {"thread_cached_bytes", "purged_bytes", "limit"}
    assert set(stats) >= CUDA_KEYS
    assert list(stats) == sorted(stats)
    nested = memory.memory_stats_as_nested_dict()
    assert nested["reserved_bytes_by_private_pools"] == {}
    assert nested["active_bytes"]["large_pool"]["peak"] == stats["active_bytes.large_pool.peak"]


@alone
def test_torchs_own_summary_reads_them() -> None:
    memory.use_caching_allocator()
    held = tensor_of(3 * MIB)
    torch.cuda.memory.memory_stats = lambda device=None: memory.memory_stats()
    torch.cuda.memory._get_device_index = lambda device, optional=False: 0
    for abbreviated in (True, False):
        text = torch.cuda.memory.memory_summary(abbreviated=abbreviated)
        assert "3072 KiB" in text and "GPU reserved memory" in text
    assert torch.cuda.memory.memory_allocated() >= 3 * MIB
    assert torch.cuda.memory.max_memory_reserved() == 20 * MIB
    assert held.numel() == 3 * MIB


@alone
def test_peaks_of_every_kind_and_pool_are_exact() -> None:
    memory.use_caching_allocator(thread_caches=False, decay=0)
    memory.record_history()
    seed = 20261117
    print("seed", seed)
    chance = random.Random(seed)
    memory.reset_peak_memory_stats()
    highest: dict[str, int] = {}
    held: list[torch.Tensor] = []
    for _ in range(300):
        if held and chance.random() < 0.45:
            held.pop(chance.randrange(len(held)))
        else:
            held.append(tensor_of(int(2 ** chance.uniform(3, 24))))
        if chance.random() < 0.02:
            memory.empty_cache()
        stats = memory.memory_stats()
        assert_sums(stats)
        for name, value in stats.items():
            if name.endswith(".current"):
                highest[name] = max(highest.get(name, 0), value)
    for name, value in highest.items():
        # A free may have split blocks and joined them again between two looks.
        if "inactive_split" in name:
            assert stats[name.replace(".current", ".peak")] >= value
        else:
            assert stats[name.replace(".current", ".peak")] == value, name
    snapshot = memory.snapshot(include_traces=False)
    inactive = [
        block["size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] == "inactive" and block["size"] != segment["total_size"]
    ]
    assert stats["inactive_split.all.current"] == len(inactive)
    assert stats["inactive_split_bytes.all.current"] == sum(inactive)


@alone
def test_the_systems_blocks_are_counted_by_the_history() -> None:
    old = tensor_of(3 * MIB)
    memory.record_history()
    base = memory.memory_stats()
    assert base["allocated_bytes.large_pool.current"] >= 3 * MIB
    new = [tensor_of(5 * MIB), tensor_of(100)]
    stats = memory.memory_stats()
    assert_sums(stats)
    for kind in ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes"):
        assert stats[f"{kind}.large_pool.current"] - base[f"{kind}.large_pool.current"] == 5 * MIB
        assert stats[f"{kind}.small_pool.current"] - base[f"{kind}.small_pool.current"] == 100
    for kind in ("allocation", "active", "segment"):
        assert stats[f"{kind}.all.current"] - base[f"{kind}.all.current"] == 2
    snapshot = memory.snapshot()
    assert stats["requested_bytes.all.current"] == sum(live(snapshot).values())
    assert stats["segment.all.current"] == len(snapshot["segments"])
    new.clear()
    del old
    after = memory.memory_stats()
    assert after["allocated_bytes.all.peak"] == stats["allocated_bytes.all.current"]
    assert after["allocated_bytes.large_pool.current"] == base["allocated_bytes.large_pool.current"] - 3 * MIB
    # What is forgotten is no longer counted.
    memory.record_history(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forgotten = memory.memory_stats()
    assert_sums(forgotten)
    assert forgotten["allocation.all.current"] == forgotten["reserved_bytes.all.current"] == 0


@alone
def test_one_peak_for_blocks_of_both_allocators() -> None:
    memory.record_history()
    system = tensor_of(10 * MIB)
    base = memory.memory_stats()["allocated_bytes.all.current"]
    memory.use_caching_allocator()
    cached = tensor_of(30 * MIB)
    block = memory.memory_stats()["allocated_bytes.all.current"] - base
    assert block >= 30 * MIB
    memory.reset_peak_memory_stats()
    del system
    del cached
    assert memory.memory_stats()["allocated_bytes.all.peak"] == base + block
    memory.reset_peak_memory_stats()
    assert memory.memory_stats()["allocated_bytes.all.peak"] == base - 10 * MIB


@alone
def test_an_error_of_the_systems_allocator_is_counted() -> None:
    memory.record_history()
    with pytest.raises(RuntimeError):
        tensor_of(2**60)
    assert memory.memory_stats()["num_ooms"] == 1


@alone
def test_sums_begin_anew() -> None:
    memory.use_caching_allocator(thread_caches=False)
    held = tensor_of(3 * MIB)
    memory.reset_accumulated_memory_stats()
    stats = memory.memory_stats()
    assert all(value == 0 for name, value in stats.items() if name.endswith((".allocated", ".freed")))
    assert stats["num_device_alloc"] == 0 and stats["allocated_bytes.all.current"] >= 3 * MIB
    del held
    memory.empty_cache()
    stats = memory.memory_stats()
    assert stats["allocation.large_pool.freed"] == stats["num_device_free"] == 1
    assert stats["allocation.large_pool.allocated"] == 0


@alone
def test_threads_count_together() -> None:
    memory.use_caching_allocator()
    base = memory.memory_stats()

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(3000):
            tensor_of(int(2 ** chance.uniform(3, 21)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stats = memory.memory_stats()
        assert stats["allocated_bytes.all.peak"] >= stats["allocated_bytes.all.current"]
    for thread in threads:
        thread.join()
    stats = memory.memory_stats()
    assert_sums(stats)
    assert stats["allocation.all.current"] == base["allocation.all.current"]
    assert stats["requested_bytes.all.current"] == base["requested_bytes.all.current"]
    assert stats["allocation.all.allocated"] - base["allocation.all.allocated"] == 12_000


@alone
def test_without_allocator_and_history_a_warning_says_that_nothing_is_known() -> None:
    with pytest.warns(UserWarning, match=r"does not count tensors of the system's allocator without a history: call "):
        memory.memory_stats()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        memory.record_history()
        memory.memory_stats()
        memory.record_history(None)
        memory.use_caching_allocator()
        memory.memory_stats("cpu")


def test_other_devices_are_refused() -> None:
    for function in (memory.memory_stats, memory.reset_peak_memory_stats, memory.reset_accumulated_memory_stats):
        with pytest.raises(OptionError, match=r"device='cuda:0' is not counted here: .*torch\.cuda\.memory_stats\(\)"):
            function("cuda:0")
        with pytest.raises(OptionError, match="device='nonsense' is not a device: give 'cpu', or nothing"):
            function("nonsense")
