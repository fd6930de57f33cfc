"""simulate_pinned: powers of two, free lists, no splitting."""

from __future__ import annotations

import random
from typing import Any

import pytest

from torchreel.allocator import Conf, simulate_pinned
from torchreel.errors import OptionError
from torchreel.simulator.conf import parse

MIB = 1 << 20


def alloc(name: Any, size: int, **others: Any) -> dict[str, Any]:
    return {"action": "alloc", "addr": name, "size": size, **others}


def free(name: Any, how: str = "free") -> dict[str, Any]:
    return {"action": how, "addr": name}


def test_requests_are_rounded_to_powers_of_two_and_never_split() -> None:
    result = simulate_pinned([alloc("a", 1000), alloc("b", 5 * MIB), free("b"), alloc("c", 3 * MIB), alloc("d", 1024)])
    assert result.stats["allocated_bytes.current"] == 1024 + 8 * MIB + 4 * MIB + 1024
    assert result.stats["allocations.current"] == result.stats["num_host_alloc"] == 4
    assert result.stats["active_requests.current"] == 3
    assert (result.peak_active, result.peak_allocated) == (1024 + 8 * MIB, 12 * MIB + 2048)
    assert result.peak_requested == 1000 + 5 * MIB


def test_a_block_of_its_power_of_two_is_used_again() -> None:
    result = simulate_pinned([alloc("a", 5 * MIB), free("a"), alloc("b", 8 * MIB), free("b"), alloc("c", 4 * MIB + 1)])
    assert result.stats["num_host_alloc"] == 1 and result.peak_allocated == 8 * MIB
    one = simulate_pinned([alloc("a", 1), alloc("b", 1)])
    assert one.peak_allocated == 2


def test_a_block_that_a_stream_still_uses_waits() -> None:
    early = [alloc("a", MIB), free("a", "free_requested"), alloc("b", MIB), free("a", "free_completed")]
    assert simulate_pinned(early).stats["num_host_alloc"] == 2
    late = [alloc("a", MIB), free("a", "free_requested"), free("a", "free_completed"), alloc("b", MIB)]
    assert simulate_pinned(late).stats["num_host_alloc"] == 1


def test_large_blocks_are_neither_rounded_nor_kept_if_the_options_say_so() -> None:
    events = [alloc("a", 5 * MIB), free("a"), alloc("b", 3 * MIB), free("b"), alloc("c", 5 * MIB)]
    kept = simulate_pinned(events, "pinned_max_round_threshold_mb:4")
    assert kept.peak_allocated == 9 * MIB and kept.stats["num_host_free"] == 0
    gone = simulate_pinned(events, "pinned_max_cached_size_mb:4")
    assert gone.stats["num_host_free"] == 1 and gone.stats["num_host_alloc"] == 3
    assert gone.peak_allocated == 9 * MIB, "the 4 MiB of b are kept beside c"
    assert simulate_pinned(events, parse("pinned_max_cached_size_mb:4")) == gone
    # A block of 4 MiB at a limit of 4 MiB is kept; one of 3 MiB at a limit of 3 is rounded to 4 and then is not.
    at_limit = [alloc("a", 3 * MIB), free("a")]
    assert simulate_pinned(at_limit, "pinned_max_cached_size_mb:4").stats["num_host_free"] == 0
    assert simulate_pinned(at_limit, "pinned_max_cached_size_mb:3").stats["num_host_free"] == 1


def test_a_block_that_is_too_small_is_said() -> None:
    events = [alloc("a", 5 * MIB), free("a"), alloc("b", 7 * MIB)]
    assert simulate_pinned(events, "pinned_max_round_threshold_mb:1").undersized == (2,)
    assert simulate_pinned(events).undersized == ()
    assert (
        simulate_pinned(
            [alloc("a", 7 * MIB), free("a"), alloc("b", 5 * MIB)], "pinned_max_round_threshold_mb:1"
        ).undersized
        == ()
    )


def test_pools_have_lists_of_their_own_and_the_cache_can_be_emptied() -> None:
    events = [alloc("a", MIB, pool=(0, 1)), free("a"), alloc("b", MIB), free("b")]
    assert simulate_pinned(events).stats["num_host_alloc"] == 2
    emptied = simulate_pinned([*events, {"action": "empty_cache"}, alloc("c", MIB)])
    assert (emptied.stats["num_host_free"], emptied.stats["num_host_alloc"]) == (2, 3)
    released = simulate_pinned([*events, {"action": "release_pool", "pool": (0, 1)}])
    assert released.stats["allocations.current"] == 1


def test_a_program_by_chance_against_the_rules_said_once_more() -> None:
    seed = 7
    print("seed", seed)
    chance = random.Random(seed)
    events, held, sizes, cached, pinned, peak = [], [], {}, [], 0, 0
    for name in range(3000):
        if held and chance.random() < 0.5:
            gone = held.pop(chance.randrange(len(held)))
            events.append(free(gone))
            cached.append(sizes[gone])
        else:
            request = int(2 ** chance.uniform(0, 26)) + 1
            size = 1
            while size < request:
                size *= 2
            events.append(alloc(name, request))
            held.append(name)
            sizes[name] = size
            if size in cached:
                cached.remove(size)
            else:
                pinned += size
        peak = max(peak, pinned)
    result = simulate_pinned(events)
    assert (result.peak_allocated, result.stats["allocated_bytes.current"]) == (peak, pinned)
    assert result.stats["active_bytes.current"] == sum(sizes[name] for name in held)


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(OptionError, match="pinned_reserve_segment_size_mb cannot be simulated: how blocks lie in"):
        simulate_pinned([], Conf(pinned=(("pinned_reserve_segment_size_mb", "64"),)))
    with pytest.raises(OptionError, match="Event 0 has the action 'map'"):
        simulate_pinned([{"action": "map"}])
