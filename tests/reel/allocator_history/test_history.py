"""Histories: levels are those of the run, also where its beginning is not recorded."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyze.memory.traces import Trace
from tests.snapshots import SNAPSHOTS
from torchreel.analyze.memory.model.device import device_memories
from torchreel.ingest import open_source

MIB = 1 << 20


def test_a_complete_history(tmp_path: Path) -> None:
    trace = Trace()
    trace.event("segment_alloc", 0, 20 * MIB)
    trace.alloc(0, 300)
    trace.alloc(512, 200)
    trace.free(0, 300)
    trace.alloc(0, 100)
    trace.segment(0, 20 * MIB, (512, "active_allocated"), (512, "active_allocated"), (19 * MIB, "inactive"))
    history = trace.memory(tmp_path).history
    assert history.allocated.tolist() == [0, 0, 300, 500, 200, 200, 300]
    assert history.active.tolist() == [0, 0, 300, 500, 500, 200, 300]
    assert history.reserved.tolist() == [0, *[20 * MIB] * 6]
    assert (history.allocs, history.events) == (3, 6)


def test_blocks_older_than_the_history_count_from_its_beginning(tmp_path: Path) -> None:
    # GIVEN a history from the middle of a run: one block is freed that it did not see made, one lives on to the end
    trace = Trace()
    trace.alloc(4096, 10)
    trace.free(1024, 500)
    trace.event("segment_free", 1 << 30, 2 * MIB)
    trace.segment(0, 2 * MIB, (1024, "inactive"), (512, "inactive"), (2048, "active_allocated"), (512, "inactive"))
    trace.block(4096, 512, requested=10)
    history = trace.memory(tmp_path).history
    # THEN both are there from the beginning, and so is the segment that was given back
    assert history.allocated.tolist() == [2548, 2558, 2058, 2058, 2058]
    assert history.reserved.tolist() == [4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 2 * MIB]


def test_a_free_that_a_stream_delays(tmp_path: Path) -> None:
    trace = Trace()
    trace.alloc(0, 8)
    trace.event("free_requested", 0, 8)
    trace.alloc(64, 1)
    trace.block(0, 512, "active_pending_free", requested=8)
    trace.block(64, 512, requested=1)
    history = trace.memory(tmp_path).history
    assert history.allocated.tolist() == [0, 8, 0, 1]
    assert history.active.tolist() == [0, 8, 8, 9]


def test_an_alloc_where_a_block_lives_means_that_its_free_was_not_seen(tmp_path: Path) -> None:
    trace = Trace("cpu")
    trace.alloc(0, 8)
    trace.alloc(0, 3)
    trace.event("free", 0, 3)
    assert trace.memory(tmp_path).history.allocated.tolist() == [0, 8, 3, 0]


def test_no_events(tmp_path: Path) -> None:
    trace = Trace()
    trace.segment(0, 2 * MIB, (512, "active_allocated"), (2 * MIB - 512, "inactive"))
    history = trace.memory(tmp_path).history
    assert (history.allocated.tolist(), history.reserved.tolist()) == ([512], [2 * MIB])


# Runs: at each step one of four addresses is allocated, or freed if it is taken.
RUNS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 1000)), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(RUNS, st.floats(0, 1))
def test_levels_of_a_cut_history_are_those_of_the_whole_one(run: list[tuple[int, int]], cut: float) -> None:
    # GIVEN the events of a run, with the bytes that are allocated after each
    live: dict[int, int] = {}
    events, levels = [], [0]
    for addr, size in run:
        if addr in live:
            freed = live.pop(addr)
            events += [("free_requested", addr, freed), ("free_completed", addr, freed)]
            levels += [sum(live.values())] * 2
        else:
            live[addr] = size
            events.append(("alloc", addr, size))
            levels.append(sum(live.values()))
    # WHEN only its end is recorded, with the final state
    first = int(cut * len(events))
    if first and events[first - 1][0] == "free_requested":
        first -= 1
    trace = Trace()
    for action, addr, size in events[first:]:
        trace.event(action, 4096 * addr, size)
    trace.segment(0, 4 * 4096)
    for addr, size in live.items():
        trace.block(4096 * addr, 4096, requested=size)
    with tempfile.TemporaryDirectory() as directory:
        history = trace.memory(Path(directory)).history
    # THEN its levels are those of the run
    assert history.allocated.tolist() == levels[first:]


def test_levels_of_real_snapshots_end_with_their_state() -> None:
    for path in SNAPSHOTS:
        with open_source(path) as reel:
            for memory in device_memories(reel):
                history = memory.history
                states = history.final["state"].to_pylist()
                requested, sizes = history.final["requested"].to_pylist(), history.final["size"].to_pylist()
                blocks = zip(states, requested, sizes, strict=True)
                state = sum(size if asked is None else asked for s, asked, size in blocks if s == "active_allocated")
                reserved = sum(history.segments["size"].to_pylist())
                assert (path.name, int(history.allocated[-1])) == (path.name, state)
                assert (path.name, int(history.reserved[-1])) == (path.name, reserved)
                assert (history.allocated >= 0).all() and (history.reserved >= 0).all()
                assert (history.active >= history.allocated).all()


def test_complete_snapshots_begin_with_nothing() -> None:
    for path in SNAPSHOTS:
        if path.stem in ("lm4_fwd_ctx100", "lm4_train_ctx100", "linear_hopper", "three_gpus_expandable_oom"):
            with open_source(path) as reel:
                first = [int(memory.history.allocated[0]) for memory in device_memories(reel)]
                reserved = [int(memory.history.reserved[0]) for memory in device_memories(reel)]
            assert set(itertools.chain(first, reserved)) == {0}, path.name


def test_the_system_allocator_of_a_snapshot_has_no_segments(tmp_path: Path) -> None:
    # GIVEN a snapshot of CPU memory that shows each block as a segment of its own
    trace = Trace("cpu")
    trace.alloc(0, 100)
    trace.segment(0, 100, (100, "active_allocated"))
    history = trace.memory(tmp_path / "a").history
    assert (history.reserves, history.reserved.tolist()) == (False, [0, 0])
    # but one of the caching allocator has them
    trace.segment(4096, 200, (100, "active_allocated"), (100, "inactive"))
    assert trace.memory(tmp_path / "b").history.reserves
