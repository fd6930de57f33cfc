"""simulate: programs as lists, as snapshots and as reels, under settings and on devices of one's choice."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import random_programs, random_snapshots
from tests.snapshots import snapshot
from torchreel.allocator import Conf, simulate
from torchreel.errors import OptionError
from torchreel.simulator.simulate import DeviceSimulation
from torchreel.simulator.source import request_traces

MIB = 1 << 20


def one(events: Any, **options: Any) -> DeviceSimulation:
    (device,) = simulate(events, **options).devices.values()
    return device


def alloc(name: Any, size: int, **others: Any) -> dict[str, Any]:
    return {"action": "alloc", "addr": name, "size": size, **others}


def free(name: Any) -> dict[str, Any]:
    return {"action": "free", "addr": name}


def test_a_small_program() -> None:
    device = one([alloc("a", 1000), alloc("b", 3 * MIB), free("a"), alloc("c", 500)])
    assert (device.peak_reserved, device.peak_allocated) == (22 * MIB, 3 * MIB + 1024)
    assert (device.peak_requested, device.allocated_at_end) == (3 * MIB + 1000, 3 * MIB + 512)
    assert device.reserved_at_end == 22 * MIB
    assert device.events == 4
    assert device.stats["allocation.all.allocated"] == 3
    assert device.stats["segment.small_pool.current"] == 1
    assert [segment["total_size"] for segment in device.segments] == [2 * MIB, 20 * MIB]
    assert [block["state"] for block in device.segments[0]["blocks"]] == ["active_allocated", "inactive"]


def test_tuples_do_as_well() -> None:
    dicts = [alloc(1, 5 * MIB, stream=7), alloc(2, 512, pool=(0, 1)), free(1)]
    tuples = [("alloc", 1, 5 * MIB, 7), ("alloc", 2, 512, 0, (0, 1)), ("free", 1)]
    assert one(dicts) == one(tuples)


def test_streams_and_pools_do_not_share_memory() -> None:
    same = one([alloc(1, 1000), alloc(2, 1000)])
    apart = one([alloc(1, 1000), alloc(2, 1000, stream=7), alloc(3, 1000, pool=(0, 1))])
    assert (same.peak_reserved, apart.peak_reserved) == (2 * MIB, 6 * MIB)


def test_fragmentation_is_what_was_not_allocated_when_most_was_reserved() -> None:
    device = one([alloc(1, 15 * MIB), alloc(2, 15 * MIB), free(1), alloc(3, 24 * MIB), free(3)])
    assert device.peak_reserved == 56 * MIB
    assert device.allocated_at_peak == 16 * MIB + 24 * MIB
    assert device.fragmentation == pytest.approx(1 - 40 / 56)
    assert one([]).fragmentation == 0


def test_a_device_that_is_full_is_emptied_and_asked_again() -> None:
    events = [alloc(1, 30 * MIB), free(1), alloc(2, 40 * MIB), alloc(3, 30 * MIB)]
    roomy = one(events)
    assert (roomy.retries, roomy.ooms, roomy.peak_reserved) == (0, 0, 70 * MIB)
    tight = one(events, capacity="64MiB")
    assert (tight.retries, tight.ooms, tight.peak_reserved) == (2, 1, 40 * MIB)
    assert tight.first_oom is not None
    assert (tight.first_oom.event, tight.first_oom.size, tight.first_oom.reserved) == (3, 30 * MIB, 40 * MIB)


def test_a_block_that_could_not_be_had_is_not_freed_either() -> None:
    device = one([alloc(1, 40 * MIB), free(1), alloc(1, 4 * MIB)], capacity=30 * MIB)
    assert (device.ooms, device.allocated_at_end) == (1, 4 * MIB)


def test_a_pending_free_holds_its_block_until_it_is_completed_or_the_device_is_full() -> None:
    events = [alloc(1, 20 * MIB), {"action": "free_requested", "addr": 1}, alloc(2, 20 * MIB)]
    late = one([*events, {"action": "free_completed", "addr": 1}])
    assert (late.peak_reserved, late.peak_allocated, late.peak_active) == (40 * MIB, 20 * MIB, 40 * MIB)
    full = one([*events, {"action": "free_completed", "addr": 1}], capacity=24 * MIB)
    assert (full.peak_reserved, full.ooms, full.stats["num_sync_all_streams"]) == (20 * MIB, 0, 1)


def test_the_cache_is_emptied_where_the_program_says() -> None:
    device = one([alloc(1, 20 * MIB), free(1), {"action": "empty_cache"}, alloc(2, MIB)])
    assert (device.reserved_at_end, device.peak_reserved) == (2 * MIB, 20 * MIB)


def test_a_private_pool_keeps_its_memory_until_it_is_released() -> None:
    events = [alloc(1, 20 * MIB, pool=(3, 0)), free(1), {"action": "empty_cache"}]
    assert one(events).reserved_at_end == 20 * MIB
    events[2:2] = [{"action": "release_pool", "pool": (3, 0)}]
    assert one(events).reserved_at_end == 0


def test_settings_as_text_or_conf() -> None:
    events = [alloc(1, 3 * MIB), alloc(2, 30 * MIB)]
    assert one(events).peak_reserved == 50 * MIB
    assert one(events, conf="expandable_segments:True").peak_reserved == 40 * MIB
    assert one(events, conf=Conf(expandable_segments=True)).peak_reserved == 40 * MIB
    with pytest.raises(OptionError, match="max_split_size_mb is '1'"):
        one(events, conf="max_split_size_mb:1")
    with pytest.raises(OptionError, match="backend:cudaMallocAsync cannot be simulated"):
        one(events, conf="backend:cudaMallocAsync")


def test_garbage_is_collected_only_below_a_limit() -> None:
    events = [alloc(1, 30 * MIB), free(1), alloc(2, 40 * MIB)]
    conf = "garbage_collection_threshold:0.2"
    assert one(events, conf=conf, capacity="128MiB").peak_reserved == 70 * MIB
    assert one(events, conf=conf, capacity="128MiB", fraction=0.9).peak_reserved == 40 * MIB


def test_a_fraction_is_a_limit() -> None:
    events = [alloc(1, 30 * MIB)]
    assert one(events, capacity="64MiB", fraction=0.5).ooms == 0
    assert one(events, capacity="64MiB", fraction=0.4).ooms == 1
    assert one(events, capacity="64MiB", conf="per_process_memory_fraction:0.4").ooms == 1


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"action": "malloc", "addr": 1}, "Event 0 has the action 'malloc': it must be one of alloc, free"),
        ({"action": "alloc", "addr": 1}, "Event 0 has the size None: it must be a number of bytes"),
        (alloc(1, -5), "Event 0 has the size -5: it must be a whole number"),
        (alloc(1, 1 << 70), "Event 0 has the size"),
        (alloc(1, 2.5), "Event 0 has the size 2.5"),
        (alloc([], 5), r"Event 0 has the addr \[\]"),
        (alloc(1, 5, stream="main"), "Event 0 has the stream 'main'"),
        (alloc(1, 5, pool="main"), "Event 0 has the pool 'main': it must be two numbers"),
        ("alloc", "Event 0 is 'alloc': give a dict with action, addr, size, stream, pool"),
    ],
)
def test_wrong_events_are_named(event: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        simulate([event])


def test_a_name_is_used_once_at_a_time() -> None:
    with pytest.raises(OptionError, match="Event 1 allocates 'a', which is not freed yet"):
        simulate([alloc("a", 5), alloc("a", 5)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": "many"}, "'many' is not a size"),
        ({"capacity": 0}, "can hold nothing"),
        ({"capacity": "9" * 300}, "is not a size"),
        ({"torch_version": "new"}, "'new' is not a version of torch: write it like 2.11"),
        ({"fraction": 2}, "fraction=2 is not a part"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        simulate([alloc(1, 5)], **options)


def test_requests_of_nothing_never_reach_the_allocator() -> None:
    assert one([alloc(1, 0), free(1)]).stats["allocation.all.allocated"] == 0


def write(path: Path, content: Any) -> Path:
    path.write_bytes(pickle.dumps(content, protocol=4))
    return path


@pytest.mark.parametrize("seed", range(20))
def test_a_recorded_program_does_the_same_again(seed: int, tmp_path: Path) -> None:
    """With the settings of the recording, on its device, a complete history reserves what it reserved."""
    setting = random_programs.long_setting(seed)
    steps = random_programs.knowable(setting, random_programs.long_steps(seed, 300))
    steps = [step for step in steps if step[0] not in ("release_pool", "empty_cache") and step[3] == 0]
    recorded = random_snapshots.snapshot_of(setting, random_programs.program(steps))
    path = write(tmp_path / "snapshot.pickle", recorded)
    fraction = None if setting.limit is None or setting.capacity is None else setting.limit / setting.capacity
    if setting.limit is not None and fraction is None:
        return  # a limit without a device
    version = ("2.11", "2.12", "2.13")[setting.order]
    if not recorded["device_traces"][0] or any(e["action"] == "oom" for e in recorded["device_traces"][0]):
        return  # a request that failed is made again, and its block would live now
    device = one(path, capacity=setting.capacity, fraction=fraction, torch_version=version)
    assert device.peak_reserved == device.recorded_peak_reserved


def test_a_user_who_empties_the_cache_is_heard_and_a_retry_is_not(tmp_path: Path) -> None:
    """The history of a full device: its releases were made for a request. That of a user who emptied the cache."""
    steps = [("alloc", 1, 30 * MIB, 0, 0), ("free", 1, 0, 0, 0), ("alloc", 2, 40 * MIB, 0, 0)]
    retried = [*steps, ("alloc", 3, 30 * MIB, 0, 0)]
    emptied = [*steps[:2], ("empty_cache", 0, 0, 0, 0), *steps[2:], ("alloc", 3, 50 * MIB, 0, 0)]
    tight = random_programs.Setting(Conf(), 2, 64 * MIB, None, {})
    roomy = random_programs.Setting(Conf(), 2, None, None, {})
    full = one(write(tmp_path / "full.pickle", random_snapshots.snapshot_of(tight, retried)))
    assert "empty_cache" not in _actions(tmp_path / "full.pickle")
    assert full.peak_reserved == 70 * MIB
    path = write(tmp_path / "emptied.pickle", random_snapshots.snapshot_of(roomy, emptied))
    assert "empty_cache" in _actions(path)
    assert one(path).peak_reserved == 90 * MIB


def test_garbage_that_was_collected_is_no_emptied_cache(tmp_path: Path) -> None:
    """There was room, and a small segment that was cached too was kept: no user had asked for this."""
    events = [alloc(1, 1000), free(1), alloc(2, 70 * MIB), free(2), alloc(3, 80 * MIB), alloc(4, 90 * MIB)]
    steps = [(e["action"], e["addr"], e.get("size", 0), 0, 0) for e in events]
    setting = random_programs.Setting(Conf(garbage_collection_threshold=0.3), 2, 400 * MIB, 200 * MIB, {})
    recorded = random_snapshots.snapshot_of(setting, steps)
    assert "segment_free" in [entry["action"] for entry in recorded["device_traces"][0]]
    assert "empty_cache" not in _actions(write(tmp_path / "garbage.pickle", recorded))


def test_a_block_that_was_waited_for_is_no_emptied_cache(tmp_path: Path) -> None:
    """It would have served the request, if it had been free when that came."""
    steps = [
        ("alloc", 1, 30 * MIB, 0, 0),
        ("free_requested", 1, 0, 0, 0),
        ("alloc", 2, 20 * MIB, 0, 0),
        ("alloc", 3, 30 * MIB, 0, 0),
    ]
    setting = random_programs.Setting(Conf(), 2, 64 * MIB, None, {})
    recorded = random_snapshots.snapshot_of(setting, steps)
    assert [entry["action"] for entry in recorded["device_traces"][0]][-4:] == [
        "free_completed",
        "segment_free",
        "segment_alloc",
        "alloc",
    ]
    assert "empty_cache" not in _actions(write(tmp_path / "late.pickle", recorded))


@pytest.mark.parametrize("seed", range(20))
def test_every_emptied_cache_of_a_device_with_room_is_heard(seed: int, tmp_path: Path) -> None:
    """The peak comes after all of them: at it the device may as well have been full, and no file tells which."""
    setting = replace(random_programs.long_setting(seed), capacity=None, limit=None)
    events = random_programs.program(
        [
            *random_programs.knowable(setting, random_programs.long_steps(seed, 200)),
            *[("alloc", 64 * MIB, 0, 0, 0)] * 40,
        ]
    )
    emptied = random_snapshots.snapshot_of(setting, events)
    lived_on = random_snapshots.snapshot_of(setting, [event for event in events if event[0] != "empty_cache"])
    heard = _actions(write(tmp_path / "emptied.pickle", emptied)).count("empty_cache")
    assert heard == _runs_of_releases(emptied)
    assert "empty_cache" not in _actions(write(tmp_path / "lived_on.pickle", lived_on))


def _runs_of_releases(recorded: dict[str, Any]) -> int:
    releases = [entry["action"] in ("segment_free", "segment_unmap") for entry in recorded["device_traces"][0]]
    return sum(one and not before for before, one in pairwise([False, *releases]))


def _actions(path: Path) -> list[str]:
    from torchreel.reel.allocator_history.actions import ACTIONS

    (program,) = request_traces(path).devices.values()
    return [ACTIONS[code] for code in program.actions]


def test_a_request_that_failed_is_made_again(tmp_path: Path) -> None:
    setting = random_programs.Setting(Conf(), 2, 32 * MIB, None, {})
    recorded = random_snapshots.snapshot_of(setting, [("alloc", 1, 20 * MIB, 0, 0), ("alloc", 2, 20 * MIB, 0, 0)])
    device = one(write(tmp_path / "oom.pickle", recorded))
    assert (device.ooms, device.peak_allocated) == (0, 40 * MIB)
    assert device.notes == ("1 requests that failed when recorded are made again, and their blocks live to the end",)


def test_blocks_older_than_the_history_come_first(tmp_path: Path) -> None:
    setting = random_programs.Setting(Conf(), 0, None, None, {})
    events = [("alloc", n, 3 * MIB, 0, 0) for n in range(4)] + [("free", 0, 0, 0, 0), ("alloc", 9, 3 * MIB, 0, 0)]
    recorded = random_snapshots.snapshot_of(setting, events, cut=5)
    device = one(write(tmp_path / "late.pickle", recorded))
    assert (device.peak_allocated, device.peak_reserved) == (12 * MIB, 20 * MIB)
    assert device.notes[0].startswith("4 blocks are older than the history")


def test_a_reel_of_cpu_tensors_is_a_program_too() -> None:
    device = one(Path(__file__).parents[1] / "reel" / "data" / "v1.reel")
    assert device.device == "cpu"
    assert device.events > 0 and device.peak_reserved >= device.peak_allocated > 0


def test_programs_are_read_once_and_simulated_often(tmp_path: Path) -> None:
    read = request_traces([alloc(1, 3 * MIB)])
    assert simulate(read) == simulate([alloc(1, 3 * MIB)])
    assert simulate(read, conf="expandable_segments:True").devices["cuda:0"].stats["segment.all.current"] == 0


@pytest.mark.parametrize("name", ["lm4_fwd_ctx100", "lm4_train_amp_ctx200", "linear_hopper"])
def test_real_programs_reserve_what_they_reserved(name: str) -> None:
    device = one(snapshot(name))
    assert device.peak_reserved == device.recorded_peak_reserved
    assert device.notes == ()


def test_a_real_program_on_a_smaller_device() -> None:
    path = snapshot("lm4_train_ctx100")
    assert one(path, capacity="800MiB").ooms == 0
    failed = one(path, capacity="500MiB")
    assert failed.ooms > 0 and failed.first_oom is not None
    assert failed.first_oom.reserved <= 500 * MIB


def test_a_pool_whose_blocks_are_not_split() -> None:
    events = [alloc("a", 2 * MIB, pool=(0, 3)), alloc("b", 2 * MIB, pool=(0, 3)), alloc("c", 2 * MIB)]
    assert one(events).peak_reserved == 40 * MIB
    whole = one(events, no_split=[(0, 3)])
    assert whole.peak_reserved == 60 * MIB
    assert whole.stats["allocated_bytes.all.current"] == 42 * MIB
    for wrong in ((0, 0), (3, 0), 5):
        with pytest.raises(OptionError, match=r"which is not a private pool of the program: it has \(0, 3\)\."):
            one(events, no_split=[wrong])


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_reserved_bytes_of_private_pools(conf: str) -> None:
    size = 20 * MIB
    events = [alloc("a", 3 * MIB, pool=(0, 3)), alloc("b", 3 * MIB), alloc("c", 100, pool=(2, 0)), free("a")]
    events += [{"action": "release_pool", "pool": (0, 3)}, {"action": "empty_cache"}, alloc("d", 19 * MIB, pool=(2, 0))]
    stats = one(events, conf=conf).stats
    name = "reserved_bytes_by_private_pools"
    parts = ("current", "peak", "allocated", "freed")
    assert [stats[f"{name}.0_3.all.{part}"] for part in parts] == [0, size, size, size]
    assert [stats[f"{name}.0_3.large_pool.{part}"] for part in parts] == [0, size, size, size]
    assert stats[f"{name}.2_0.small_pool.current"] == 2 * MIB
    assert stats[f"{name}.2_0.large_pool.current"] == size
    assert stats[f"{name}.2_0.all.peak"] == size + 2 * MIB
    assert not any("0_0" in key for key in stats)


@pytest.mark.parametrize("variable", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_the_environment_is_not_used_and_said_not_to_be(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [alloc("a", 2 * MIB)]
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    assert one(events).notes == ()
    monkeypatch.setenv(variable, "large_segment_size_mb:64")
    device = one(events)
    assert device.peak_reserved == 20 * MIB
    assert device.notes == (f"{variable}=large_segment_size_mb:64 is set here and not used: give it as conf to try it",)
    given = one(events, conf="large_segment_size_mb:64")
    assert (given.peak_reserved, given.notes) == (64 * MIB, ())
