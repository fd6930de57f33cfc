"""Recorded histories, run again: real snapshots, those of random programs, and those that hold nonsense."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest

from tests.in_child import in_child
from tests.simulator import random_snapshots
from tests.simulator.recorded.mangling import mangle
from tests.snapshots import SNAPSHOTS
from torchreel.allocator import verify
from torchreel.errors import OptionError, TorchreelError
from torchreel.ingest import tables_of
from torchreel.simulator.recorded.recorded_history import recorded_histories_of
from torchreel.simulator.recorded.verify import DeviceVerification, sorted_ranks, verify_history

MIB = 1 << 20
HISTORIES = {"lm4": "complete", "linear": "complete", "three": "complete", "state": "none"}  # the others begin mid-run


def verified(snapshot: dict[str, Any]) -> DeviceVerification:
    return verify_history(recorded_histories_of(tables_of(snapshot))[0])


SEEDS = [*range(50), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(50, 120))]


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.stem)
def test_every_real_snapshot_comes_out_as_recorded(path: Path) -> None:
    verification = verify(path)
    assert verification.ok
    for device in verification.devices.values():
        assert device.history == HISTORIES.get(path.stem.split("_")[0], "mid-run")
        assert device.allocs.total > 0 or device.history == "none"
        assert device.to_json()["mismatch"] is None


# 1430: the pool of a segment shows only when another request passes it by. 2610: releases that make room look like
# garbage at first. 7344: garbage is collected after a free of some of it was completed.
@pytest.mark.parametrize("seed", [*SEEDS, 1430, 2610, 7344])
def test_complete_recorded_histories_of_random_programs(seed: int) -> None:
    setting, snapshot = random_snapshots.random_snapshot(seed, cuts=False)
    device = verified(snapshot)
    assert device.ok, (setting, device)
    assert device.history == "complete"


# 2368, 4615: an expandable segment that came and went is of the default pool, though a private one has a closer one.
@pytest.mark.parametrize("seed", [*SEEDS, 2368, 4615])
def test_recorded_histories_of_random_programs_from_their_middle(seed: int) -> None:
    setting, snapshot = random_snapshots.random_snapshot(seed, cuts=True)
    device = verified(snapshot)
    assert device.ok or setting.collects_garbage, (setting, device)


@pytest.mark.long
@pytest.mark.parametrize("cuts", [False, True])
def test_thousands_of_random_programs(cuts: bool) -> None:
    """Nothing is lost of complete histories, and of cut ones hardly anything: some ties have more than one reason."""
    seen = lost = 0
    for seed in range(1000, 5000):
        setting, snapshot = random_snapshots.random_snapshot(seed, cuts)
        if cuts and setting.collects_garbage:
            continue  # the ages of blocks are in no file
        device = verified(snapshot)
        for score in (device.allocs, device.segment_events):
            seen += score.total
            lost += score.total - score.matched
    assert lost <= (seen // 10_000 if cuts else 0)


def small_history() -> dict[str, Any]:
    """Three blocks of one segment, of which the first is freed and used again; then one of its own segment."""
    segment, large = 0x7F0000000000, 0x7F1000000000
    events = [
        ("segment_alloc", segment, 2 * MIB),
        ("alloc", segment, 1000),
        ("alloc", segment + 1024, 512),
        ("alloc", segment + 1536, 2000),
        ("free_requested", segment, 1000),
        ("free_completed", segment, 1000),
        ("alloc", segment, 600),
        ("segment_alloc", large, 12 * MIB),
        ("alloc", large, 12 * MIB),
    ]
    blocks = [(0, 1024, 600), (1024, 512, 512), (1536, 2048, 2000)]
    return {
        "segments": [
            _segment(segment, 2 * MIB, "small", [(segment + at, size, asked) for at, size, asked in blocks]),
            _segment(large, 12 * MIB, "large", [(large, 12 * MIB, 12 * MIB)]),
        ],
        "device_traces": [[_entry(*event) for event in events]],
    }


def _entry(action: str, address: int, size: int) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0}


def _segment(address: int, size: int, kind: str, live: list[tuple[int, int, int]]) -> dict[str, Any]:
    blocks = [{"address": at, "size": n, "requested_size": asked, "state": "active_allocated"} for at, n, asked in live]
    end = live[-1][0] + live[-1][1]
    if end < address + size:
        rest = address + size - end
        blocks.append({"address": end, "size": rest, "requested_size": 0, "state": "inactive"})
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "stream": 0,
        "segment_type": kind,
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "blocks": blocks,
    }


def test_a_history_in_json() -> None:
    device = verified(small_history())
    assert device.to_json() == {
        "allocs": {"matched": 5, "total": 5},
        "segment_events": {"matched": 2, "total": 2},
        "peak_reserved": {"recorded": 14 * MIB, "simulated": 14 * MIB},
        "history": "complete",
        "order": "address",
        "torch": "2.0-2.1",
        "notes": [],
        "mismatch": None,
    }


def test_an_address_that_no_allocator_would_give_is_found_and_counts_once() -> None:
    snapshot = small_history()
    trace = snapshot["device_traces"][0]
    trace[3] = {**trace[3], "addr": trace[3]["addr"] + 512}
    device = verified(snapshot)
    assert not device.ok
    assert (device.allocs.matched, device.allocs.total) == (4, 5)
    assert str(device.mismatch) == (
        "event 3: recorded was alloc of 2000 bytes at 0x7f0000000800, "
        "simulated was alloc of 2000 bytes at 0x7f0000000600"
    )


def test_a_segment_that_was_not_needed_is_found() -> None:
    snapshot = small_history()
    segment = 0x7F2000000000
    snapshot["device_traces"][0][2:2] = [_entry("segment_alloc", segment, 2 * MIB), _entry("alloc", segment, 100)]
    snapshot["segments"].append(_segment(segment, 2 * MIB, "small", [(segment, 512, 100)]))
    device = verified(snapshot)
    assert not device.ok
    assert (device.segment_events.matched, device.segment_events.total) == (2, 3)
    assert device.recorded_peak == 16 * MIB


def test_a_release_that_was_not_recorded_counts_against_those_that_were() -> None:
    _, snapshot = next(
        (setting, snapshot)
        for setting, snapshot in (random_snapshots.random_snapshot(seed, cuts=False) for seed in range(100))
        if sum(entry["action"] == "segment_free" for entry in snapshot["device_traces"][0]) > 3
    )
    trace = snapshot["device_traces"][0]
    place = [i for i, entry in enumerate(trace) if entry["action"] == "segment_free"][1]
    del trace[place]
    device = verified(snapshot)
    assert not device.ok and device.segment_events.matched < device.segment_events.total


@pytest.mark.parametrize("kept", ["free_requested", "free_completed"])
def test_half_of_each_free_is_enough(kept: str) -> None:
    snapshot = small_history()
    dropped = {"free_requested": "free_completed", "free_completed": "free_requested"}[kept]
    snapshot["device_traces"][0] = [e for e in snapshot["device_traces"][0] if e["action"] != dropped]
    assert verified(snapshot).ok


def test_events_of_other_kinds_are_passed_over() -> None:
    snapshot = small_history()
    snapshot["device_traces"][0].insert(3, _entry("snapshot", 0, 5))
    snapshot["device_traces"][0].insert(5, _entry("user_defined", 0, 0))
    assert verified(snapshot).ok


def test_one_event_is_no_history() -> None:
    snapshot = small_history()
    snapshot["device_traces"][0] = snapshot["device_traces"][0][-1:]
    assert verified(snapshot).history == "none"


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_order_of_free_blocks_tells_the_version(order: int) -> None:
    """Of programs with ties whose addresses jump about, the right order is found wherever only one fits."""
    found = set()
    for seed in range(200):
        setting, snapshot = random_snapshots.random_snapshot(seed, cuts=False, count=300)
        if setting.order == order:
            for entry in snapshot["device_traces"][0]:
                entry["pool_id"] = entry.get("pool_id", (0, 0))
            found.add(verified(snapshot).order)
    assert ("address", "block", "segment")[order] in found


def test_a_version_that_the_file_names_is_tried_first() -> None:
    snapshot = small_history()
    for version, order in (("2.11.0+cu128", "address"), ("2.12.1", "block"), ("2.14.0a0", "segment")):
        device = verified({**snapshot, "torch_version": version})
        assert (device.order, device.torch, device.ok) == (order, version, True)


def test_a_pool_that_is_put_back_into_an_earlier_state() -> None:
    """What trees of CUDA graphs do: all blocks of a segment are allocated in a row, and some freed again."""
    base = 0x7F0000000000
    sizes = [1024, 4096, 512, 2 * MIB - 5632]
    trace = [_entry("segment_alloc", base, 2 * MIB), _entry("alloc", base, 1000), _entry("alloc", base + 1024, 4096)]
    for address, size in ((base, 1000), (base + 1024, 4096)):
        trace += [_entry("free_requested", address, size), _entry("free_completed", address, size)]
    address = base
    for size in sizes:
        trace.append(_entry("alloc", address, size))
        address += size
    for at, size in ((base + 1024, 4096), (base + 5632, sizes[-1])):
        trace += [_entry("free_requested", at, size), _entry("free_completed", at, size)]
    trace.append(_entry("alloc", base + 1024, 4000))
    blocks = [(base, 1024, 1024), (base + 1024, 4096, 4000), (base + 5120, 512, 512)]
    segment = {**_segment(base, 2 * MIB, "small", blocks), "segment_pool_id": (0, 1)}
    device = verified({"segments": [segment], "device_traces": [trace]})
    assert device.ok and device.allocs.total == 7


def test_a_reel_of_cpu_tensors_has_nothing_to_verify() -> None:
    with pytest.raises(OptionError, match="holds nothing of a CUDA allocator"):
        verify(Path(__file__).parents[2] / "reel" / "data" / "v1.reel")


def count_nonsense(seeds: range) -> None:
    for seed in seeds:
        print("seed", seed, flush=True)
        count_nonsense_of(seed)


def count_nonsense_of(seed: int) -> None:
    draw = random.Random(seed)
    _, snapshot = random_snapshots.random_snapshot(seed, cuts=draw.random() < 0.5, count=150)
    snapshot = copy.deepcopy(snapshot)
    mangle(snapshot, draw)
    try:
        histories = recorded_histories_of(tables_of(snapshot))
    except TorchreelError:
        return  # the reader has found it
    for history in histories:
        device = verify_history(history)
        assert 0 <= device.allocs.matched <= device.allocs.total
        assert 0 <= device.segment_events.matched <= device.segment_events.total


@pytest.mark.parametrize("seeds", [range(75), range(75, 150)], ids=str)
def test_nonsense_is_counted_and_nothing_more(seeds: range) -> None:
    in_child(count_nonsense, seeds)


def test_ranks_keep_the_order_of_pairs() -> None:
    assert sorted_ranks(4, []) == [0, 1, 2, 3]
    ranks = sorted_ranks(4, [(3, 0), (0, 2), (3, 2)])
    assert ranks[3] < ranks[0] < ranks[2] and sorted(ranks) == [0, 1, 2, 3]


def test_pairs_that_contradict_each_other_give_some_order() -> None:
    assert sorted(sorted_ranks(5, [(1, 2), (2, 3), (3, 1), (3, 0)])) == [0, 1, 2, 3, 4]
