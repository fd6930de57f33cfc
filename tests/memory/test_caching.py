"""The caching allocator: segments and blocks, what it counts, what it gives back, and its limit."""

from __future__ import annotations

import gc
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import torchreel
from tests.alone import alone, resident_bytes, run_python
from tests.memory.state import assert_tiled, blocks, free_neighbours, live, segments, trace
from tests.waiting import until
from torchreel import _core, memory
from torchreel.errors import OptionError, RecorderError

KIB, MIB = 2**10, 2**20


def tensor_of(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8)


def owned(tensor: torch.Tensor) -> bool:
    return _core.owns(tensor.untyped_storage().data_ptr())


@alone
def test_small_and_large_blocks_come_from_their_own_segments() -> None:
    memory.use_caching_allocator()
    tiny, small, large, huge = tensor_of(1), tensor_of(MIB // 2), tensor_of(2 * MIB), tensor_of(50 * MIB)
    snapshot = memory.snapshot()
    assert_tiled(snapshot)
    kinds = {}
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            kinds[block["address"]] = (segment["segment_type"], segment["total_size"])
    assert kinds[tiny.data_ptr()] == kinds[small.data_ptr()] == ("small", 2 * MIB)
    assert kinds[large.data_ptr()] == ("large", 20 * MIB)
    assert kinds[huge.data_ptr()] == ("large", 52 * MIB)


@alone
def test_the_smallest_free_block_that_fits_is_taken_and_split() -> None:
    memory.use_caching_allocator(thread_caches=False)
    # GIVEN free blocks of 4, 3 and 2 MiB, between others that are in use
    tensors = [tensor_of(size * MIB) for size in (4, 1, 3, 1, 2, 1)]
    four, three, two = (tensors[index].data_ptr() for index in (0, 2, 4))
    tensors[0] = tensors[2] = tensors[4] = tensor_of(0)
    # WHEN something smaller is asked for, THEN the best fit is taken
    first = tensor_of(2 * MIB)
    assert first.data_ptr() == two
    second = tensor_of(2 * MIB - 100 * KIB)
    assert second.data_ptr() == three
    # The rest of it, about 1.1 MiB, is a free block of its own.
    snapshot = memory.snapshot()
    assert_tiled(snapshot)
    rest = next(block for block in blocks(snapshot, "inactive") if three < block["address"] < two)
    assert MIB < rest["size"] < 1.2 * MIB
    third = tensor_of(MIB)
    assert third.data_ptr() == rest["address"]
    assert tensor_of(3 * MIB + 1).data_ptr() == four


@alone
def test_neighbours_that_are_free_become_one_block() -> None:
    memory.use_caching_allocator(thread_caches=False)
    tensors = [tensor_of(size) for size in (3 * MIB, 3 * MIB, 3 * MIB, 500, 500, 100 * KIB, 20, 4 * MIB)]
    for index in (1, 4, 0, 2, 6, 3, 7, 5):  # the middle first, then its neighbours
        tensors[index] = tensor_of(0)
        snapshot = memory.snapshot()
        assert_tiled(snapshot)
        assert free_neighbours(snapshot) == 0
    assert live(snapshot) == {}
    assert all(len(segment["blocks"]) == 1 for segment in snapshot["segments"])


@alone
def test_a_thread_keeps_small_blocks_and_hands_them_out_again() -> None:
    memory.use_caching_allocator()
    first = tensor_of(1000)
    address = first.data_ptr()
    del first
    assert memory.memory_stats()["thread_cached_bytes"] > 0
    assert [block["state"] for block in blocks(memory.snapshot(), "inactive")][:1] == ["inactive"]
    again = tensor_of(990)
    assert again.data_ptr() == address
    memory.use_caching_allocator(thread_caches=False)
    del again
    assert memory.memory_stats()["thread_cached_bytes"] == 0


@alone
def test_a_threads_cache_has_its_bounds() -> None:
    memory.use_caching_allocator()
    tensors = [tensor_of(900 * KIB) for _ in range(30)] + [tensor_of(100) for _ in range(2000)]
    tensors.clear()
    assert memory.memory_stats()["thread_cached_bytes"] <= 8 * MIB
    assert_tiled(memory.snapshot())


@alone
def test_every_size_is_aligned_and_large_enough() -> None:
    memory.use_caching_allocator()
    sizes = sorted({1, 63, 64, 65, *(2**power + extra for power in range(7, 26) for extra in (-65, -64, -1, 0, 1, 64))})
    tensors = [tensor_of(size).fill_(index % 251) for index, size in enumerate(sizes)]
    assert all(tensor.data_ptr() % 64 == 0 and owned(tensor) for tensor in tensors)
    for index, tensor in enumerate(tensors):
        assert bool((tensor == index % 251).all())
    snapshot = memory.snapshot()
    assert_tiled(snapshot)
    assert sorted(live(snapshot).values()) == sorted(tensor.numel() for tensor in tensors)
    # Little is lost by rounding: a quarter at most, beside the header.
    for block in blocks(snapshot):
        if block["requested_size"] < MIB - 64:
            assert block["size"] <= block["requested_size"] * 1.26 + 2 * 64 + 512
        else:
            assert block["size"] <= block["requested_size"] + MIB + 64


@alone
def test_a_tensor_of_nothing_takes_nothing() -> None:
    memory.use_caching_allocator()
    tensor = torch.empty(0)
    assert tensor.data_ptr() == 0
    assert memory.snapshot()["segments"] == []
    assert tensor.sum() == 0
    tensor.resize_(100).fill_(2)
    assert tensor.sum() == 200 and owned(tensor)
    tensor.resize_(0)
    assert torch.cat([torch.empty(0), torch.ones(3)]).tolist() == [1, 1, 1]


@alone
def test_sizes_that_cannot_be_are_said() -> None:
    memory.use_caching_allocator()
    with pytest.raises(RuntimeError, match="negative dimension"):
        torch.empty(-1)
    for size in (2**45, 2**60, 2**62):
        with pytest.raises(torch.OutOfMemoryError, match=r"There is no memory for a CPU tensor of \d+\.\d TiB: "):
            tensor_of(size)
    with pytest.raises(RuntimeError):
        torch.empty(2**62, dtype=torch.float64)
    with pytest.raises(RuntimeError):
        torch.empty(2**40, 2**40)
    assert memory.memory_stats()["num_ooms"] == 3
    assert torch.ones(10).sum() == 10


@alone
def test_stats_are_the_sums_of_the_snapshot() -> None:
    memory.use_caching_allocator()
    generator = torch.Generator().manual_seed(0)
    held = []
    for size in torch.randint(1, 3 * MIB, (400,), generator=generator).tolist():
        held.append(tensor_of(size))
        if len(held) > 40:
            del held[size % 40]
    stats, snapshot = memory.memory_stats(), memory.snapshot()
    for pool, kinds in (("small_pool", ["small"]), ("large_pool", ["large"]), ("all", ["small", "large"])):
        those = [segment for segment in snapshot["segments"] if segment["segment_type"] in kinds]
        used = [block for segment in those for block in segment["blocks"] if block["state"] == "active_allocated"]
        assert stats[f"segment.{pool}.current"] == len(those)
        assert stats[f"reserved_bytes.{pool}.current"] == sum(segment["total_size"] for segment in those)
        assert stats[f"allocation.{pool}.current"] == len(used)
        assert stats[f"allocated_bytes.{pool}.current"] == sum(block["size"] for block in used)
        assert stats[f"requested_bytes.{pool}.current"] == sum(block["requested_size"] for block in used)
        for name in ("allocation", "allocated_bytes", "requested_bytes", "segment"):
            current = stats[f"{name}.{pool}.allocated"] - stats[f"{name}.{pool}.freed"]
            assert stats[f"{name}.{pool}.current"] == current
    free = sum(block["size"] for block in blocks(snapshot, "inactive"))
    whole = sum(s["total_size"] for s in snapshot["segments"] if len(s["blocks"]) == 1 and s["allocated_size"] == 0)
    assert stats["inactive_split_bytes.all.current"] + stats["thread_cached_bytes"] == free - whole
    assert stats["requested_bytes.all.current"] == sum(tensor.numel() for tensor in held)


@alone
def test_nanochat_839_the_peak_of_cpu_memory_is_there() -> None:
    memory.use_caching_allocator()
    base = memory.memory_stats()["allocated_bytes.all.current"]
    tensor = torch.ones(100 * MIB // 4)
    del tensor
    stats = memory.memory_stats()
    assert 100 * MIB <= stats["allocated_bytes.all.peak"] - base < 102 * MIB
    assert stats["reserved_bytes.all.peak"] >= stats["allocated_bytes.all.peak"]
    assert stats["allocated_bytes.all.current"] - base < MIB
    memory.empty_cache()
    memory.reset_peak_memory_stats()
    stats = memory.memory_stats()
    assert stats["allocated_bytes.all.peak"] == stats["allocated_bytes.all.current"]
    assert stats["reserved_bytes.all.peak"] == stats["reserved_bytes.all.current"] < 100 * MIB
    torch.ones(30 * MIB // 4)
    assert 30 * MIB <= memory.memory_stats()["allocated_bytes.all.peak"] < 40 * MIB


@alone
def test_empty_cache_returns_memory() -> None:
    memory.use_caching_allocator(decay=0)
    keep = torch.ones(1000)
    tensors = [torch.ones(64 * MIB) for _ in range(2)] + [torch.ones(200 * KIB) for _ in range(100)]
    full = resident_bytes()
    tensors.clear()
    assert resident_bytes() > full - 50 * MIB, "freed memory is kept"
    returned = memory.empty_cache()
    assert returned > 580 * MIB
    assert resident_bytes() < full - 560 * MIB
    assert memory.memory_stats()["reserved_bytes.all.current"] < 30 * MIB
    assert keep.sum() == 1000
    assert torch.ones(MIB).sum() == MIB


@alone
def test_pages_between_blocks_that_are_in_use_are_returned_too() -> None:
    memory.use_caching_allocator(decay=0)
    tensors = [torch.ones(2 * MIB) for _ in range(30)]
    full, reserved = resident_bytes(), memory.memory_stats()["reserved_bytes.all.current"]
    assert reserved >= 240 * MIB
    for index in range(0, 30, 2):
        tensors[index] = torch.empty(0)
    memory.empty_cache()
    assert resident_bytes() < full - 110 * MIB
    assert all(bool((tensor == 1).all()) for tensor in tensors)
    # What was returned can be used again.
    again = [torch.full((2 * MIB,), 3.0) for _ in range(15)]
    assert all(bool((tensor == 3).all()) for tensor in again)
    assert all(bool((tensor == 1).all()) for tensor in tensors)


@alone
def test_unused_memory_decays_without_any_further_allocation() -> None:
    memory.use_caching_allocator(decay=0.05)
    tensor = torch.ones(64 * MIB)
    full = resident_bytes()
    del tensor

    def is_returned() -> bool:
        # Pages go first and the segment that held them after, so both are waited for.
        reserved = memory.memory_stats()["reserved_bytes.all.current"]
        return resident_bytes() <= full - 250 * MIB and reserved < 100 * MIB

    until(is_returned)


@alone
def test_memory_decays_while_the_program_goes_on_allocating() -> None:
    """In two phases: what the second one cuts from a large free block does not keep the rest of it."""
    memory.use_caching_allocator(decay=0.3)
    tensor = torch.ones(64 * MIB)
    full = resident_bytes()
    del tensor

    def goes_on_and_is_returned() -> bool:
        pieces = [torch.ones(size * MIB // 4) for size in (3, 2, 5)]
        small = [torch.ones(100) for _ in range(20)]
        assert all(bool((piece == 1).all()) for piece in pieces + small)
        # Pages are counted a little after they went, so both are waited for.
        return resident_bytes() <= full - 220 * MIB and memory.memory_stats()["purged_bytes"] >= 220 * MIB

    until(goes_on_and_is_returned)


@pytest.mark.parametrize("turns", [300, pytest.param(1500, marks=pytest.mark.long)])
@alone
def test_nothing_is_lost_while_blocks_are_cut_joined_and_returned(turns: int) -> None:
    memory.use_caching_allocator(decay=0.01)
    seed = 13
    print("seed", seed)
    chance = random.Random(seed)
    held: list[tuple[int, torch.Tensor]] = []
    for turn in range(turns):
        if len(held) > 25 or (held and chance.random() < 0.45):
            value, tensor = held.pop(chance.randrange(len(held)))
            assert bool((tensor == value).all())
        else:
            value = turn % 251
            held.append((value, torch.full((int(2 ** chance.uniform(18, 24)),), value, dtype=torch.uint8)))
        if turn % 100 == 0:
            assert_tiled(memory.snapshot())
    assert all(bool((tensor == value).all()) for value, tensor in held)
    held.clear()
    del tensor
    memory.empty_cache()
    assert memory.memory_stats()["reserved_bytes.large_pool.current"] == 0


@alone
def test_a_tensor_of_ten_mebibytes_reserves_twelve_and_shares_the_rest() -> None:
    memory.use_caching_allocator()
    ten = tensor_of(10 * MIB)
    assert memory.memory_stats()["reserved_bytes.all.current"] == 12 * MIB
    assert memory.memory_stats()["allocated_bytes.all.current"] == 10 * MIB + 64
    rest = tensor_of(MIB + 512 * KIB)
    assert memory.memory_stats()["reserved_bytes.all.current"] == 12 * MIB
    assert ten.data_ptr() < rest.data_ptr() < ten.data_ptr() + 12 * MIB


@alone
def test_without_decay_memory_stays() -> None:
    torch.set_num_threads(1)  # a forked child does not have the others
    memory.use_caching_allocator(decay=0.01)
    memory.use_caching_allocator(decay=0)
    tensor = torch.ones(64 * MIB)
    full = resident_bytes()
    del tensor
    # A process that has a decay, and frees its memory later, is waited for.
    child = os.fork()
    if child == 0:
        memory.use_caching_allocator(decay=0.01)
        another = torch.ones(64 * MIB)
        its_full = resident_bytes()
        del another
        until(lambda: resident_bytes() <= its_full - 250 * MIB)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert resident_bytes() > full - 50 * MIB


@alone
def test_a_limit_holds_and_its_error_names_the_largest_holders() -> None:
    memory.use_caching_allocator()
    memory.set_limit("200MiB")
    large = tensor_of(100 * MIB)
    small = [tensor_of(4 * MIB) for _ in range(5)]
    with pytest.raises(torch.OutOfMemoryError) as error:
        tensor_of(90 * MIB)
    first, holders, *others, last = str(error.value).split("\n")
    assert re.fullmatch(
        r"There is no memory for a CPU tensor of 90\.0 MiB: 12\d\.\d MiB are allocated and 1\d\d\.0 MiB reserved "
        r"of the limit of 200\.0 MiB\. The largest holders:",
        first,
    )
    assert holders == "  100.0 MiB in 1 block"
    assert others == ["  4.0 MiB in 1 block"] * 4
    assert last == (
        " Call torchreel.memory.record_history() at the start to see their lines. "
        "Free some of them, or raise the limit with torchreel.memory.set_limit()."
    )
    # The program goes on, with less.
    assert memory.memory_stats()["num_ooms"] == 1
    assert memory.memory_stats()["limit"] == 200 * MIB
    del large
    assert tensor_of(90 * MIB).numel() == 90 * MIB
    memory.set_limit(None)
    assert tensor_of(300 * MIB).numel() == 300 * MIB
    assert len(small) == 5


@alone
def test_with_a_history_the_holders_have_their_lines() -> None:
    memory.use_caching_allocator()
    memory.record_history()
    memory.set_limit("100MiB")
    held = [tensor_of(20 * MIB) for _ in range(3)]
    with pytest.raises(torch.OutOfMemoryError) as error:
        tensor_of(60 * MIB)
    line = r"\n  60\.0 MiB in 3 blocks from .*test_caching\.py:\d+ in tensor_of\n"
    assert re.search(line, str(error.value))
    assert "record_history" not in str(error.value)
    event = trace(memory.snapshot())[-1]
    assert (event["action"], event["size"]) == ("oom", 60 * MIB)
    assert event["device_free"] == 100 * MIB - memory.memory_stats()["allocated_bytes.all.current"]
    assert "addr" not in event
    assert event["frames"][0]["name"] == "tensor_of"
    assert len(held) == 3


@alone
def test_callbacks_are_told_before_the_error_in_their_order() -> None:
    memory.use_caching_allocator()
    memory.set_limit("50MiB")
    held = tensor_of(20 * MIB)
    told: list[Any] = []

    def fails(*arguments: object) -> None:
        told.append("fails")
        raise ValueError("a callback of mine")

    def allocates_too_much(*arguments: object) -> None:
        with pytest.raises(torch.OutOfMemoryError):
            tensor_of(70 * MIB)
        told.append("allocates")

    memory.on_out_of_memory(lambda *arguments: told.append(arguments))
    memory.on_out_of_memory(fails)
    memory.on_out_of_memory(allocates_too_much)
    memory.on_out_of_memory(lambda *arguments: told.append(len(live(memory.snapshot()))))
    with pytest.raises(torch.OutOfMemoryError):
        tensor_of(60 * MIB)
    allocated = memory.memory_stats()["allocated_bytes.all.current"]
    assert told == [("cpu", 60 * MIB, allocated, 50 * MIB - allocated), "fails", "allocates", 1]
    assert held.numel() == 20 * MIB


@alone
def test_the_systems_refusal_is_told_too() -> None:
    told: list[Any] = []
    memory.record_history()
    memory.on_out_of_memory(lambda *arguments: told.append(arguments[:2]))
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        tensor_of(2**50)
    assert told == [("cpu", 2**50)]
    event = trace(memory.snapshot())[-1]
    assert (event["action"], event["size"]) == ("oom", 2**50)
    assert event["frames"][0]["name"] == "tensor_of"


@alone
def test_a_limit_that_holds_once_the_cache_is_emptied() -> None:
    memory.use_caching_allocator()
    memory.set_limit("64MiB")
    for size in (50 * MIB, 30 * MIB, 60 * MIB, 10 * MIB, 22 * MIB):
        assert tensor_of(size).fill_(1)[-1] == 1
    # Small blocks in this thread's cache, which fill the limit but for two segments
    tensors = [tensor_of(500 * KIB) for _ in range(90)]
    tensors.clear()
    assert tensor_of(60 * MIB).numel() == 60 * MIB
    stats = memory.memory_stats()
    assert stats["num_ooms"] == 0 and stats["num_alloc_retries"] >= 3
    assert stats["reserved_bytes.all.peak"] <= 64 * MIB


def test_a_limit_needs_the_allocator() -> None:
    with pytest.raises(RecorderError, match="A limit needs the caching allocator: call "):
        memory.set_limit("1GiB")


@alone
def test_wrong_limits_and_options_are_said() -> None:
    memory.use_caching_allocator()
    for wrong in ("much", "", "-1", -1, 2**200, "9" * 400, "1 TiBs", True, [1]):
        with pytest.raises(OptionError):
            memory.set_limit(wrong)
    for small in (1, "1MiB", 0):
        with pytest.raises(OptionError, match="holds no segment: give at least 2MiB, or None for no limit"):
            memory.set_limit(small)
    memory.set_limit(2**64)
    assert memory.memory_stats()["limit"] == 2**62
    for decay in (-1, 1e6, float("nan"), float("inf"), "10", None, True):
        with pytest.raises(OptionError, match="is not a time: give seconds, from 0"):
            memory.use_caching_allocator(decay=decay)


@alone
def test_tensors_cross_the_switch_in_both_directions() -> None:
    before = torch.ones(3 * MIB)
    assert not owned(before)
    memory.use_caching_allocator()
    cached = torch.ones(3 * MIB)
    assert owned(cached)
    assert float(before.sum()) == 3 * MIB
    del before
    memory.use_caching_allocator(False)
    after = torch.ones(3 * MIB)
    assert not owned(after) and float((cached + after).sum()) == 6 * MIB
    del cached
    assert memory.memory_stats()["allocation.all.current"] == 0
    memory.use_caching_allocator()
    del after
    for switch in (True, False) * 20:
        memory.use_caching_allocator(switch)
        tensors = [torch.full((size,), float(size)) for size in (10, 1000, 100_000)]
        kept = [tensors[1]] if switch else []
        assert owned(torch.ones(5)) == switch
    assert [tensor.sum() for tensor in kept] == []
    memory.empty_cache()
    gc.collect()


@pytest.mark.parametrize(("value", "caches"), [("caching", True), ("system", False), ("", False)])
def test_the_environment_switches_it_on(value: str, caches: bool) -> None:
    script = "import torch, torchreel; from torchreel import _core; print(_core.owns(torch.ones(9).data_ptr()))"
    result = run_python("-c", script, TORCHREEL_ALLOCATOR=value)
    assert (result.returncode, result.stdout.strip()) == (0, str(caches)), result.stderr


def test_a_wrong_word_in_the_environment_is_said() -> None:
    result = run_python("-m", "torchreel", "--help", TORCHREEL_ALLOCATOR="jemalloc")
    assert result.returncode != 0
    assert "TORCHREEL_ALLOCATOR=jemalloc is not known: it is 'caching' or 'system'." in result.stderr
    assert "Traceback" not in result.stderr


def test_the_command_line_switches_it_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nfor size in (10, 30_000_000):\n    torch.ones(size).sum()\n")
    reel_path = tmp_path / "a.reel"
    command = ["record", "--allocator", "caching", "--memory", "-o", reel_path, tmp_path / "train.py"]
    result = run_python("-m", "torchreel", *command)
    assert result.returncode == 0, result.stderr
    reel = torchreel.load(reel_path)
    allocs = reel.allocs.to_pylist()
    made = [row for row in allocs if row["action"] == "segment_alloc"]
    assert {row["size"] for row in made} >= {2 * MIB, 116 * MIB}
    tensor = next(row for row in allocs if row["action"] == "alloc" and row["size"] == 120_000_000)
    segment = next(row for row in made if row["size"] == 116 * MIB)
    assert segment["addr"] <= tensor["addr"] < segment["addr"] + segment["size"]


@alone
def test_what_is_owned_and_what_is_not(tmp_path: Path) -> None:
    import numpy

    memory.use_caching_allocator()
    torch.save(torch.ones(1000), tmp_path / "zip.pt")
    torch.save(torch.ones(1000), tmp_path / "legacy.pt", _use_new_zipfile_serialization=False)
    shared = torch.ones(1000).share_memory_()
    ours = {
        "factory": torch.empty(1000),
        "output": torch.ones(1000) + 1,
        "list": torch.tensor([1.0, 2.0]),
        "cast": torch.ones(1000).to(torch.float64),
        "loaded": torch.load(tmp_path / "zip.pt"),
        "clone of NumPy's": torch.from_numpy(numpy.ones(1000)).clone(),
        "values of a sparse one": torch.eye(100).to_sparse().values(),
        "quantized": torch.quantize_per_tensor(torch.ones(1000), 0.1, 0, torch.qint8),
    }
    others = {
        "from NumPy": torch.from_numpy(numpy.ones(1000)),
        "mapped": torch.load(tmp_path / "zip.pt", mmap=True),
        "shared": shared,
    }
    assert {name: owned(tensor) for name, tensor in ours.items()} == dict.fromkeys(ours, True)
    assert {name: owned(tensor) for name, tensor in others.items()} == dict.fromkeys(others, False)
    assert not _core.owns(0) and not _core.owns(2**64 - 1) and not _core.owns(id(ours))
    assert float(torch.load(tmp_path / "legacy.pt").sum()) == float(others["mapped"].sum()) == 1000


@alone
def test_segments_go_away_when_all_is_freed() -> None:
    memory.use_caching_allocator()
    tensors = [tensor_of(size) for size in (1, 5000, 2 * MIB, 30 * MIB)]
    assert len(segments(memory.snapshot())) == 3
    tensors.clear()
    memory.empty_cache()
    assert segments(memory.snapshot()) == {}
    stats = memory.memory_stats()
    assert stats["reserved_bytes.all.current"] == stats["segment.all.current"] == 0
    assert stats["segment.all.freed"] == 3
