"""Damage to snapshots at random: what is lost, doubled, swapped or nonsense, but still of the right types."""

from __future__ import annotations

import random
from typing import Any

ACTIONS = ["alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap"]


def mangle(snapshot: dict[str, Any], draw: random.Random) -> None:
    for _ in range(draw.choice([1, 2, 5, 20])):
        trace, segments = snapshot["device_traces"][0], snapshot["segments"]
        if not trace or not segments:
            return
        draw.choice([_lose, _double, _swap, _number, _action, _segment, _block])(trace, segments, draw)


def _lose(trace: list[Any], segments: list[Any], draw: random.Random) -> None:
    part = draw.choice([trace, trace, segments])
    del part[draw.randrange(len(part))]


def _double(trace: list[Any], segments: list[Any], draw: random.Random) -> None:
    part = draw.choice([trace, segments])
    part.insert(draw.randrange(len(part)), dict(draw.choice(part)))


def _swap(trace: list[Any], segments: list[Any], draw: random.Random) -> None:
    first, second = draw.randrange(len(trace)), draw.randrange(len(trace))
    trace[first], trace[second] = trace[second], trace[first]


def _number(trace: list[Any], segments: list[Any], draw: random.Random) -> None:
    entry = dict(draw.choice(trace))
    key = draw.choice(["addr", "size", "stream"])
    value = entry.get(key, 0)
    others = [
        0,
        1,
        512,
        1 << 20,
        2 << 20,
        1 << 40,
        (1 << 62) - 1,
        value * 2,
        value + 512,
        value ^ 1 << draw.randrange(60),
    ]
    entry[key] = min(draw.choice(others), (1 << 63) - 1)
    trace[draw.randrange(len(trace))] = {"addr": 0, **entry}


def _action(trace: list[Any], segments: list[Any], draw: random.Random) -> None:
    place = draw.randrange(len(trace))
    trace[place] = {"addr": 0, **trace[place], "action": draw.choice([*ACTIONS, "oom", "snapshot", "other"])}


def _segment(trace: list[Any], segments: list[Any], draw: random.Random) -> None:
    place = draw.randrange(len(segments))
    key = draw.choice(["address", "total_size", "is_expandable", "segment_type"])
    values = {"is_expandable": [True, False], "segment_type": ["small", "large"]}
    segments[place] = {**segments[place], key: draw.choice(values.get(key, [0, 512, 1 << 21, 1 << 50, (1 << 62) - 1]))}


def _block(trace: list[Any], segments: list[Any], draw: random.Random) -> None:
    blocks = draw.choice(segments)["blocks"]
    if blocks:
        block = draw.choice(blocks)
        block["state"] = draw.choice(["active_allocated", "active_pending_free", "inactive"])
        block[draw.choice(["address", "size", "requested_size"])] = draw.choice([0, 1, 512, 1 << 30])
