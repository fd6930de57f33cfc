"""The native model against the same rules in plain Python, and what must hold of it whatever the program."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from benchmarks.plain_allocator import PlainAllocator
from hypothesis import given, settings

from tests.simulator import native_run, random_programs
from tests.simulator.random_programs import Event, Setting

UNIT = 2 << 20


def compare(setting: Setting, events: list[Event]) -> None:
    result = native_run.run(setting.rules(), setting.flags, events)
    plain = PlainAllocator(setting.rules(), setting.flags)
    plain.run(events)
    assert native_run.trace(result) == plain.trace
    assert native_run.state(result) == plain.state()
    assert result["stats"] == plain.stats.named()


@settings(max_examples=300, deadline=None)
@given(setting=random_programs.settings(), steps=random_programs.steps())
def test_it_does_what_the_plain_one_does(setting: Setting, steps: list[Any]) -> None:
    compare(setting, random_programs.program(steps))


@pytest.mark.parametrize("seed", range(30))
def test_it_does_what_the_plain_one_does_in_long_programs(seed: int) -> None:
    compare(random_programs.long_setting(seed), random_programs.program(random_programs.long_steps(seed, 1500)))


@settings(max_examples=300, deadline=None)
@given(setting=random_programs.settings(), steps=random_programs.steps())
def test_blocks_tile_segments_and_sums_equal_stats(setting: Setting, steps: list[Any]) -> None:
    result = native_run.run(setting.rules(), setting.flags, random_programs.program(steps))
    segments: dict[int, list[tuple[int, int, str]]] = {}
    state, stats = result["state"], result["stats"]
    for base, address, size, code in zip(
        *(state[name].tolist() for name in ("segment", "address", "size", "state")), strict=True
    ):
        segments.setdefault(base, []).append((address, size, native_run.STATES[code]))
    units = _reserved_units(native_run.trace(result))
    held: set[int] = set()
    for base, blocks in segments.items():
        ends = [address + size for address, size, _ in blocks]
        # Blocks tile their segment: each begins where the one before it ends, and no two overlap.
        assert [address for address, _, _ in blocks] == [base, *ends[:-1]]
        assert all(size > 0 for _, size, _ in blocks)
        # Merging is complete: no two free blocks are neighbours.
        states = [word for _, _, word in blocks]
        assert ("free", "free") not in list(itertools.pairwise(states))
        held |= set(range(base // UNIT, ends[-1] // UNIT))
    assert held == units
    everything = [block for blocks in segments.values() for block in blocks]
    of = {word: [size for _, size, state_ in everything if state_ == word] for word in native_run.STATES}
    assert sum(map(sum, of.values())) == stats["reserved_bytes.all.current"] == len(units) * UNIT
    assert sum(of["allocated"]) == stats["allocated_bytes.all.current"]
    assert len(of["allocated"]) == stats["allocation.all.current"]
    assert sum(of["allocated"]) + sum(of["pending"]) == stats["active_bytes.all.current"]
    assert state["requested"].sum() == stats["requested_bytes.all.current"]
    for name in ("reserved_bytes", "allocated_bytes", "active", "segment", "inactive_split"):
        assert stats[f"{name}.all.current"] == sum(stats[f"{name}.{pool}_pool.current"] for pool in ("small", "large"))
        assert stats[f"{name}.all.allocated"] - stats[f"{name}.all.freed"] == stats[f"{name}.all.current"]


def _reserved_units(trace: list[Event]) -> set[int]:
    """What a history took from the device and did not give back, in units of 2 MiB."""
    units: set[int] = set()
    for action, address, size, _, _ in trace:
        touched = set(range(address // UNIT, (address + size) // UNIT))
        if action in ("segment_alloc", "segment_map"):
            assert not touched & units, "memory was taken that was taken already"
            units |= touched
        elif action in ("segment_free", "segment_unmap"):
            assert touched <= units, "memory was given back that was not taken"
            units -= touched
    return units


@settings(max_examples=200, deadline=None)
@given(setting=random_programs.settings(), steps=random_programs.steps())
def test_reserved_memory_never_exceeds_the_limits(setting: Setting, steps: list[Any]) -> None:
    result = native_run.run(setting.rules(), setting.flags, random_programs.program(steps))
    peak = result["stats"]["reserved_bytes.all.peak"]
    assert setting.capacity is None or peak <= setting.capacity
    # Pages are whole: what expandable segments map may be more than the request that was held against the limit.
    assert setting.limit is None or setting.conf.expandable_segments or peak <= setting.limit
