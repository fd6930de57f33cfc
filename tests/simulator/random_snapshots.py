"""Snapshots as torch would have written them of programs at random: complete, or from the middle of their history."""

from __future__ import annotations

import random
from typing import Any

from tests.simulator import native_run, random_programs
from tests.simulator.random_programs import Event, Setting
from torchreel.simulator.conf import Conf
from torchreel.simulator.simulate import DeviceSimulation

POOLS = [(0, 0), (0, 1), (3, 0)]


def random_snapshot(seed: int, cuts: bool, count: int = 400) -> tuple[Setting, dict[str, Any]]:
    """What a program of `count` steps leaves, and its setting; `cuts`: the first part of its history is lost."""
    setting = random_programs.long_setting(seed)
    steps = random_programs.knowable(setting, random_programs.long_steps(seed, count))
    draw = random.Random(~seed)
    snapshot = snapshot_of(setting, random_programs.program(steps), draw.choice([0, seed * 7919 + 1]))
    trace = snapshot["device_traces"][0]
    if cuts and trace:
        snapshot["device_traces"] = [trace[draw.randrange(len(trace)) :]]
    return setting, snapshot


def snapshot_of(setting: Setting, events: list[Event], address_seed: int = 0, cut: int = 0) -> dict[str, Any]:
    """The dictionary of torch.cuda.memory._snapshot after the program; `cut` events of its history are lost."""
    rules = {**setting.rules(), "address_seed": address_seed}
    result = native_run.run(rules, setting.flags, events)
    trace = [_entry(*entry, with_pool=setting.order > 0) for entry in native_run.trace(result)]
    return {
        "segments": [{"device": 0, **segment} for segment in _segments(result)],
        "device_traces": [trace[cut:]],
        "allocator_settings": allocator_settings(setting.conf),
        "external_annotations": [],
    }


def _segments(result: Any) -> list[dict[str, Any]]:
    nothing = dict.fromkeys(
        ("events", "peak_reserved", "peak_allocated", "peak_active", "peak_requested", "reserved_at_end")
        + ("allocated_at_end", "allocated_at_peak", "retries", "ooms"),
        0,
    )
    return DeviceSimulation(
        "cuda:0", **nothing, first_oom=None, stats={}, state=result["state"], pools=tuple(POOLS)
    ).segments


def _entry(action: str, address: int, size: int, stream: int, pool: int, with_pool: bool) -> dict[str, Any]:
    """One event as torch 2.11 has it, or 2.12 and later, which name the pool."""
    key = "device_free" if action == "oom" else "addr"
    entry = {"action": action, key: address, "size": size, "stream": stream, "time_us": 1, "compile_context": "N/A"}
    entry["user_metadata"] = ""
    if with_pool:
        entry["pool_id"] = POOLS[pool]
    return entry


def allocator_settings(conf: Conf) -> dict[str, Any]:
    return {
        "PYTORCH_CUDA_ALLOC_CONF": str(conf),
        "max_split_size": -1 if conf.max_split_size is None else conf.max_split_size,
        "garbage_collection_threshold": conf.garbage_collection_threshold,
        "expandable_segments": conf.expandable_segments,
        "graph_capture_record_stream_reuse": False,
        "roundup_power2_divisions": {str(1 << i): value for i, value in enumerate(conf.roundup_power2_divisions)},
    }
