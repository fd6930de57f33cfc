"""Histories whose every state is known: requests that run through the model of the CUDA caching allocator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.analyze.memory.traces import Trace
from torchreel.analyze.memory import DeviceMemory
from torchreel.reel.allocator_history.actions import ACTIONS
from torchreel.simulator import simulate

Event = tuple[str, int, int, int, tuple[int, int]]
_SIZES = (100, 512, 2_000, 70_000, 900_000, 1 << 20, 3 << 20, 9 << 20, 11 << 20, 40 << 20)


def requests(seed: int, count: int) -> list[Event]:
    """Allocs, frees and emptied caches, by chance."""
    random = np.random.default_rng(seed)
    events: list[Event] = []
    alive: list[tuple[int, int]] = []
    pending: list[tuple[int, int]] = []
    for number in range(count):
        dice = random.random()
        if dice < 0.5 or not alive:
            size, stream = int(random.choice(_SIZES) + random.integers(3)), int(random.integers(2))
            events.append(("alloc", number, size, stream, (0, 0)))
            alive.append((number, stream))
        elif dice < 0.9:
            block, stream = alive.pop(int(random.integers(len(alive))))
            events.append(("free_requested", block, 0, stream, (0, 0)))
            pending.append((block, stream))
        elif dice < 0.93:
            events.append(("empty_cache", -1, 0, 0, (0, 0)))
        while pending and random.random() < 0.7:
            block, stream = pending.pop(0)
            events.append(("free_completed", block, 0, stream, (0, 0)))
    return events


@dataclass(frozen=True)
class Simulated:
    """A run of requests, and what the allocator did."""

    events: list[Event]
    conf: str
    prefixes: list[int]  # for each number of requests how many events the history has then

    def segments(self, count: int) -> list[dict[str, Any]]:
        """The state after so many requests."""
        found = simulate(self.events[:count], self.conf or None).devices["cuda:0"]
        return found.segments


def write(path: Path, seed: int, count: int = 150, conf: str = "", skipped: int = 0) -> tuple[DeviceMemory, Simulated]:
    """The device's memory as a recording shows it, without the first events, and what it really was."""
    events = requests(seed, count)
    result = simulate(events, conf or None, trace=True).devices["cuda:0"]
    assert result.trace is not None
    trace = Trace()
    columns = (result.trace[name].tolist() for name in ("action", "address", "size", "stream"))
    for at, (action, address, size, stream) in enumerate(zip(*columns, strict=True)):
        if at >= skipped:
            trace.event(ACTIONS[action], address, size, stream=stream, pool="0,0")
    for segment in result.segments:
        row = {"type": segment["segment_type"], "stream": segment["stream"], "expandable": segment["is_expandable"]}
        trace.segment(segment["address"], segment["total_size"], **row, pool="0,0")
        for block in segment["blocks"]:
            trace.block(block["address"], block["size"], block["state"], requested=block["requested_size"])
    prefixes = []
    for count_ in range(len(events) + 1):
        part = simulate(events[:count_], conf or None, trace=True).devices.get("cuda:0") if count_ else None
        prefixes.append(0 if part is None or part.trace is None else len(part.trace["action"]))
    return trace.memory(path), Simulated(events, conf, prefixes)
