"""The state of an allocator at any instant, against the allocator itself."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.analyze.memory import simulated
from tests.analyze.memory.traces import Trace
from tests.snapshots import SNAPSHOTS
from torchreel.analyze.memory import DeviceMemory, allocator_state, device_memories, fragmentation
from torchreel.analyze.memory.segments import FREE, PENDING, STATES, USED, AllocatorState, usage
from torchreel.ingest import open_source

MIB = 1 << 20
CONFS = ("", "expandable_segments:True", "max_split_size_mb:20")
_STATE = {"active_allocated": "allocated", "active_pending_free": "pending", "inactive": "free"}


def used(state: AllocatorState) -> list[tuple[int, int, str]]:
    """Address, bytes that were asked for, and state of each block."""
    pieces = state.pieces
    rows = zip(pieces.address.tolist(), pieces.requested.tolist(), pieces.state.tolist(), strict=True)
    return [(address, size, STATES[kind]) for address, size, kind in rows if kind != FREE]


def recorded(segments: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    blocks = [block for segment in segments for block in segment["blocks"] if block["state"] != "inactive"]
    return sorted((block["address"], block["requested_size"], _STATE[block["state"]]) for block in blocks)


def check_against(state: AllocatorState, segments: list[dict[str, Any]]) -> None:
    assert used(state) == recorded(segments)
    found = list(zip(state.segments.address.tolist(), state.segments.size.tolist(), strict=True))
    assert found == [(segment["address"], segment["total_size"]) for segment in segments]
    assert state.segments.stream.tolist() == [segment["stream"] for segment in segments]
    assert not state.segments.is_region.any()
    # Pieces tile their segments.
    ends = state.pieces.address + state.pieces.size
    for place, (address, size) in enumerate(found):
        mine = state.pieces.segment == place
        assert state.pieces.address[mine].tolist() == [address, *ends[mine].tolist()[:-1]]
        assert ends[mine][-1] == address + size
    # A block takes what the allocator gave it, or less: a rest that was not split off may look free.
    truth = {block["address"]: block["size"] for segment in segments for block in segment["blocks"]}
    for address, size, kind, exact in zip(
        state.pieces.address.tolist(),
        state.pieces.size.tolist(),
        state.pieces.state.tolist(),
        state.pieces.is_exact.tolist(),
        strict=True,
    ):
        if kind != FREE:
            assert size == truth[address] if exact else size <= truth[address]


@pytest.mark.parametrize("conf", CONFS)
@pytest.mark.parametrize("seed", range(3))
def test_every_state_is_the_allocators(tmp_path: Path, seed: int, conf: str) -> None:
    memory, truth = simulated.write(tmp_path, seed, conf=conf)
    for count in range(0, len(truth.events) + 1, 7):
        if truth.prefixes[count]:
            check_against(allocator_state(memory, truth.prefixes[count] - 1), truth.segments(count))
    check_against(allocator_state(memory, memory.history.events - 1), truth.segments(len(truth.events)))
    before = allocator_state(memory, -1)
    assert len(before.segments) == len(before.pieces) == 0


@pytest.mark.parametrize("conf", CONFS)
def test_a_history_that_begins_in_the_middle_has_the_same_states(tmp_path: Path, conf: str) -> None:
    skipped = 90
    memory, truth = simulated.write(tmp_path, 5, conf=conf, skipped=skipped)
    counts = [count for count in range(len(truth.events) + 1) if truth.prefixes[count] >= skipped]
    for count in counts[::9]:
        state = allocator_state(memory, truth.prefixes[count] - skipped - 1)
        segments = truth.segments(count)
        assert [(a, s) for a, s, kind in used(state)] == [(a, s) for a, s, kind in recorded(segments)]
        assert state.segments.address.tolist() == [segment["address"] for segment in segments]
        assert state.segments.size.tolist() == [segment["total_size"] for segment in segments]
    assert (memory.history.blocks.start == -1).any()


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.stem)
def test_real_snapshots(path: Path) -> None:
    """Sums are those of the levels; at the end they are those that `torchreel memory` prints."""
    with open_source(path) as reel:
        for memory in device_memories(reel):
            history = memory.history
            for position in {-1, history.events - 1, *range(0, history.events, max(history.events // 50, 1))}:
                check_sums(memory, position)
            found = fragmentation(memory)
            if found is not None:
                end = allocator_state(memory, history.events - 1)
                assert asdict(usage(end)) == asdict(found.total)
                assert [asdict(usage(end, kind)) for kind in ("small", "large")] == [asdict(p) for p in found.pools]


def check_sums(memory: DeviceMemory, position: int) -> None:
    state, history = allocator_state(memory, position), memory.history
    pieces = state.pieces
    assert pieces.requested[pieces.state == USED].sum() == history.allocated[position + 1]
    assert pieces.requested[pieces.state != FREE].sum() == history.active[position + 1]
    assert usage(state).reserved == history.reserved[position + 1] == pieces.size.sum()
    assert (np.diff(pieces.address) > 0).all()


def test_what_rounding_takes(tmp_path: Path) -> None:
    """A block of the large pool keeps a rest of up to 1 MiB; one that survives has the size that was recorded."""
    trace = Trace()
    trace.event("segment_alloc", 0, 20 * MIB)
    trace.alloc(0, 5 * MIB + 1)
    trace.alloc(6 * MIB, 13 * MIB)
    trace.free(0, 5 * MIB + 1)
    trace.segment(0, 20 * MIB, (6 * MIB, "inactive"))
    trace.block(6 * MIB, 14 * MIB, requested=13 * MIB)
    memory = trace.memory(tmp_path)
    state = allocator_state(memory, 2)
    assert state.pieces.size.tolist() == [6 * MIB, 14 * MIB]
    assert state.pieces.is_exact.tolist() == [False, True]
    assert usage(state).rounding == 2 * MIB - 1
    pending = allocator_state(memory, 3)
    assert pending.pieces.state.tolist() == [PENDING, USED] and usage(pending).pending == 6 * MIB
    freed = allocator_state(memory, 4)
    assert freed.pieces.state.tolist() == [FREE, USED] and usage(freed).split == 6 * MIB


def test_pages_of_an_expandable_segment_come_and_go(tmp_path: Path) -> None:
    trace = Trace()
    page = 2 * MIB
    for number in range(4):
        trace.event("segment_map", number * page, page, stream=7)
    trace.event("segment_unmap", page, 2 * page, stream=7)
    trace.segment(0, page, (page, "inactive"), type="small", expandable=True, stream=7)
    trace.segment(3 * page, page, (page, "inactive"), type="small", expandable=True, stream=7)
    memory = trace.memory(tmp_path)

    def spans(position: int) -> list[tuple[int, int]]:
        segments = allocator_state(memory, position).segments
        return list(zip((segments.address // page).tolist(), (segments.size // page).tolist(), strict=True))

    assert spans(-1) == []
    assert spans(0) == [(0, 1)]
    assert spans(2) == [(0, 3)]
    assert spans(3) == [(0, 4)]
    assert spans(4) == [(0, 1), (3, 1)]
    assert allocator_state(memory, 3).segments.expandable.tolist() == [True]


def test_without_segments_blocks_make_regions(tmp_path: Path) -> None:
    trace = Trace("cpu")
    trace.alloc(1000, 64)
    trace.alloc(2000, 100)
    trace.alloc(500 * MIB, 10)
    trace.event("free", 2000, 100)
    memory = trace.memory(tmp_path)
    state = allocator_state(memory, 2)
    assert state.segments.is_region.all() and usage(state).reserved == 0
    assert state.segments.address.tolist() == [1000, 500 * MIB]
    assert state.segments.size.tolist() == [1100, 10]
    assert (state.pieces.state == USED).all() and state.pieces.size.tolist() == [64, 100, 10]
    assert allocator_state(memory, 3).segments.size.tolist() == [64, 10]


def test_a_block_outside_of_all_segments_is_not_lost(tmp_path: Path) -> None:
    trace = Trace()
    trace.event("segment_alloc", 0, 2 * MIB)
    trace.alloc(512, 512)
    trace.alloc(64 * MIB, 700)
    trace.segment(0, 2 * MIB, (2 * MIB, "inactive"))
    state = allocator_state(trace.memory(tmp_path), 2)
    assert state.segments.is_region.tolist() == [False, True]
    assert state.pieces.requested.sum() == 512 + 700 and usage(state).reserved == 2 * MIB


@pytest.mark.parametrize("address", [-5, None, (1 << 63) - 1, 0])
@pytest.mark.parametrize("size", [-1, None, (1 << 63) - 1, 0, 7])
def test_nonsense_does_not_break_it(tmp_path: Path, address: int | None, size: int | None) -> None:
    trace = Trace()
    actions = ("alloc", "segment_alloc", "segment_map", "segment_unmap", "free_requested", "segment_free", "alloc")
    for action in actions:
        trace.event(action, address, size)  # type: ignore[arg-type]
    trace.add("segments", device="cuda:0", address=address, size=size, type=None, expandable=None)
    trace.add("segments", device="cuda:0", address=0, size=4096, type="odd", expandable=None)
    trace.add("blocks", device="cuda:0", address=address, size=size, state="active_allocated", requested=None)
    memory = trace.memory(tmp_path)
    for position in range(-1, len(actions)):
        state = allocator_state(memory, position)
        assert (state.pieces.size >= 0).all() and (np.diff(state.pieces.address) > 0).all()
        usage(state)
