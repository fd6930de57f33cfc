"""What a snapshot says of memory, and whether it agrees with itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Snapshot = dict[str, Any]
Live = dict[int, int]


def trace(snapshot: Snapshot) -> list[dict[str, Any]]:
    return snapshot["device_traces"][0]


def heap_segments(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Without those of private pools: graphs of other tests in this process may have some."""
    return [segment for segment in snapshot["segments"] if tuple(segment["segment_pool_id"]) == (0, 0)]


def blocks(snapshot: Snapshot, state: str = "active_allocated") -> list[dict[str, Any]]:
    return [block for segment in snapshot["segments"] for block in segment["blocks"] if block["state"] == state]


def live(snapshot: Snapshot) -> Live:
    """Address and requested bytes of the blocks that are in use."""
    return {block["address"]: block["requested_size"] for block in blocks(snapshot)}


def assert_tiled(snapshot: Snapshot) -> None:
    """Segments ascend and do not overlap; blocks fill theirs, one after the other; sizes are sums."""
    end = 0
    for segment in snapshot["segments"]:
        assert segment["address"] >= end
        end = segment["address"] + segment["total_size"]
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            assert block["state"] in ("active_allocated", "inactive")
            assert block["size"] > 0 and block["requested_size"] <= block["size"]
            address += block["size"]
        assert address == end
        used = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
        assert segment["allocated_size"] == segment["active_size"] == sum(block["size"] for block in used)
        assert segment["requested_size"] == sum(block["requested_size"] for block in used)


def free_neighbours(snapshot: Snapshot) -> int:
    """How many free blocks stand beside a free block: none, but for those that a thread keeps."""
    return sum(
        left["state"] == right["state"] == "inactive"
        for segment in snapshot["segments"]
        for left, right in zip(segment["blocks"], segment["blocks"][1:], strict=False)
    )


def replay(events: Iterable[dict[str, Any]], start: Live) -> Live:
    """What is in use after the events, if this was in use before: each address once, each free of a living block."""
    now = dict(start)
    requested: int | None = None
    for event in events:
        action, address, size = event["action"], event.get("addr"), event["size"]
        if requested is not None:
            assert (action, address) == ("free_completed", requested), "a free is completed where it was requested"
        requested = None
        if action == "alloc":
            assert address not in now, f"{address:#x} is in use"
            now[address] = size
        elif action == "free_requested":
            assert now[address] == size
            requested = address
        elif action == "free_completed":
            assert now.pop(address) == size
    return now


def replay_segments(events: Iterable[dict[str, Any]], start: Live) -> Live:
    """Segments after the events. Each alloc and free lies within one that is there at the time."""
    now = dict(start)
    for event in events:
        action, address = event["action"], event.get("addr")
        if action == "segment_alloc":
            assert address not in now
            now[address] = event["size"]
        elif action == "segment_free":
            assert now.pop(address) == event["size"]
        elif action in ("alloc", "free_requested", "free_completed"):
            assert any(begin <= address and address + event["size"] <= begin + size for begin, size in now.items())
    return now


def segments(snapshot: Snapshot) -> Live:
    return {segment["address"]: segment["total_size"] for segment in snapshot["segments"]}
