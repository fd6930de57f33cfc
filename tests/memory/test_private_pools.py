"""Pools that another extension keeps: in snapshots, stats, histories and recordings, and in agreement with them."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from pathlib import Path

import pytest
import torch

import torchreel
from tests.alone import alone
from tests.memory.state import Snapshot, assert_tiled, live, replay, trace
from tests.memory.viewer import assert_viewable
from torchreel import _core, memory
from torchreel.errors import OptionError

KIB = 2**10
SOURCE = Path(__file__).with_name("toy_pool.cpp")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("pool") / "toy_pool.so"
    command = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", str(SOURCE), "-o", str(target)]
    subprocess.run(command, check=True, timeout=300)
    return str(target)


def open_pool(library: str) -> tuple[ctypes.CDLL, int]:
    """The pool, whose functions run without the GIL, and its number."""
    pool = ctypes.CDLL(library)
    for name in ("open_pool", "address"):
        getattr(pool, name).restype = ctypes.c_uint64
    pool.open_pool.argtypes = [ctypes.c_void_p]
    for name in ("reach", "take", "give", "churn"):
        getattr(pool, name).argtypes = [ctypes.c_uint64] * (2 if name in ("take", "churn") else 1)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return pool, pool.open_pool(pointer(_core.private_pools, b"torchreel.private_pools"))


def pool_segments(snapshot: Snapshot) -> list[dict]:
    return [segment for segment in snapshot["segments"] if segment["segment_pool_id"] != (0, 0)]


@alone
def test_a_pool_is_a_segment_that_its_blocks_tile(library: str) -> None:
    pool, number = open_pool(library)
    assert pool_segments(memory.snapshot()) == []  # it has nothing yet
    pool.reach(256 * KIB)
    pool.take(128 * KIB, 32 * KIB)
    pool.take(0, 64 * KIB)
    snapshot = memory.snapshot()
    assert_tiled(snapshot)
    [segment] = pool_segments(snapshot)
    assert segment["segment_pool_id"] == (0, number) and segment["is_expandable"]
    assert (segment["address"], segment["total_size"]) == (pool.address(), 256 * KIB)
    assert segment["allocated_size"] == segment["active_size"] == segment["requested_size"] == 96 * KIB
    assert [(block["size"] // KIB, block["state"]) for block in segment["blocks"]] == [
        (64, "active_allocated"),
        (64, "inactive"),
        (32, "active_allocated"),
        (96, "inactive"),
    ]


@alone
def test_blocks_that_overlap_and_blocks_past_the_end_still_tile(library: str) -> None:
    pool, _ = open_pool(library)
    pool.reach(64 * KIB)
    for offset, size in ((0, 40), (8, 8), (16, 32), (60, 40), (100, 4)):
        pool.take(offset * KIB, size * KIB)
    snapshot = memory.snapshot()
    assert_tiled(snapshot)
    assert pool_segments(snapshot)[0]["allocated_size"] == (48 + 4) * KIB


@alone
def test_stats_count_a_pool_without_a_history_and_without_caching(library: str) -> None:
    pool, number = open_pool(library)
    with pytest.warns(UserWarning, match="does not count tensors of the system's allocator without a history"):
        before = memory.memory_stats()
    pool.reach(300 * KIB)
    pool.take(0, 64 * KIB)
    pool.take(100 * KIB, 100)
    pool.give(0)
    pool.reach(200 * KIB)
    memory.use_caching_allocator()
    after = memory.memory_stats()
    expected = {
        "reserved_bytes": (200 * KIB, 300 * KIB, 300 * KIB, 100 * KIB),
        "allocated_bytes": (100, 64 * KIB + 100, 64 * KIB + 100, 64 * KIB),
        "active_bytes": (100, 64 * KIB + 100, 64 * KIB + 100, 64 * KIB),
        "requested_bytes": (100, 64 * KIB + 100, 64 * KIB + 100, 64 * KIB),
        "allocation": (1, 2, 2, 1),
        "active": (1, 2, 2, 1),
        "segment": (0, 0, 0, 0),
    }
    for name, values in expected.items():
        for where in ("large_pool", "all"):
            for part, value in zip(("current", "peak", "allocated", "freed"), values, strict=True):
                key = f"{name}.{where}.{part}"
                assert after[key] - before[key] == value, key
    by_pool = f"reserved_bytes_by_private_pools.0_{number}"
    assert after[f"{by_pool}.all.current"] == after[f"{by_pool}.large_pool.current"] == 200 * KIB
    assert after[f"{by_pool}.all.peak"] == 300 * KIB and after[f"{by_pool}.small_pool.peak"] == 0
    nested = memory.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"]
    assert nested[(0, number)]["all"]["freed"] == 100 * KIB
    memory.reset_peak_memory_stats()
    assert memory.memory_stats()[f"{by_pool}.all.peak"] == 200 * KIB


@alone
def test_the_history_has_the_pools_events_and_agrees_with_the_state(library: str) -> None:
    pool, number = open_pool(library)
    pool.reach(64 * KIB)
    pool.take(0, 4 * KIB)  # older than the history
    memory.record_history()
    start = live(memory.snapshot())
    pool.reach(128 * KIB)
    pool.take(64 * KIB, 8 * KIB)
    pool.take(16 * KIB, 8 * KIB)
    pool.give(0)
    pool.give(16 * KIB)
    pool.reach(96 * KIB)
    snapshot = memory.snapshot()
    events = [event for event in trace(snapshot) if event["pool_id"] == (0, number)]
    base = pool.address()
    assert [(event["action"], event["addr"] - base, event["size"] // KIB) for event in events] == [
        ("segment_map", 64 * KIB, 64),
        ("alloc", 64 * KIB, 8),
        ("alloc", 16 * KIB, 8),
        ("free_requested", 0, 4),
        ("free_completed", 0, 4),
        ("free_requested", 16 * KIB, 8),
        ("free_completed", 16 * KIB, 8),
        ("segment_unmap", 96 * KIB, 32),
    ]
    assert replay(trace(snapshot), start) == live(snapshot)
    assert_viewable(snapshot, with_segments=False)
    [kept] = [block for block in pool_segments(snapshot)[0]["blocks"] if block["state"] == "active_allocated"]
    assert kept["frames"][0]["name"] == "test_the_history_has_the_pools_events_and_agrees_with_the_state"
    assert memory.allocation_traceback(base + 64 * KIB) == kept["frames"]
    assert memory.allocation_traceback(base) is None


@alone
def test_snapshots_agree_while_threads_use_the_pool(library: str) -> None:
    pool, _ = open_pool(library)
    pool.reach(64 * KIB)
    memory.use_caching_allocator()
    memory.record_history()
    start = live(memory.snapshot())
    threads = [threading.Thread(target=pool.churn, args=(4 * KIB, 20_000))]
    threads += [threading.Thread(target=lambda: [torch.ones(100) for _ in range(5_000)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        snapshot = memory.snapshot()
        assert_tiled(snapshot)
        assert replay(trace(snapshot), start) == live(snapshot)
    for thread in threads:
        thread.join()
    stats, snapshot = memory.memory_stats(), memory.snapshot()
    assert stats["allocated_bytes.all.current"] == sum(part["allocated_size"] for part in snapshot["segments"])


@alone
def test_one_pool_alone(library: str) -> None:
    pool, number = open_pool(library)
    pool.reach(64 * KIB)
    memory.use_caching_allocator()
    held = torch.ones(1000)
    assert [part["segment_pool_id"] for part in memory.snapshot((0, number))["segments"]] == [(0, number)]
    ids = {part["segment_pool_id"] for part in memory.snapshot((0, 0))["segments"]}
    assert ids == {(0, 0)}
    assert memory.snapshot((7, number))["segments"] == memory.snapshot((0, number + 1))["segments"] == []
    for wrong in (5, (1,), ("a", 2), (0, -1), (0, 1.5)):
        with pytest.raises(OptionError, match="is not a pair of numbers, as segment_pool_id is"):
            memory.snapshot(wrong)
    assert held.sum() == 1000


@alone
def test_a_recording_has_the_pools_blocks(library: str, tmp_path: Path) -> None:
    pool, _ = open_pool(library)
    pool.reach(64 * KIB)
    pool.take(0, 12_345)
    with torchreel.record(tmp_path / "run.reel", memory=True):
        pool.take(32 * KIB, 23_456)
        pool.give(32 * KIB)
        pool.give(0)
    base = pool.address()
    rows = torchreel.load(tmp_path / "run.reel").allocs.select(["addr", "action", "size"]).to_pylist()
    mine = [(row["addr"] - base, row["action"], row["size"]) for row in rows if base <= row["addr"] < base + 64 * KIB]
    assert mine == [
        (0, "preexisting", 12_345),
        (32 * KIB, "alloc", 23_456),
        (32 * KIB, "free", 23_456),
        (0, "free", 12_345),
    ]
