"""The segments and blocks of one process, as a snapshot has them: the blocks of a segment tile it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from torchreel.export.snapshot.devices import Device
from torchreel.export.snapshot.events import pool_id
from torchreel.export.snapshot.rows import ProcessTables
from torchreel.export.snapshot.stacks import Stacks

_SEGMENTS = [
    *("device", "address", "size", "allocated", "active", "requested", "stream", "type", "pool", "expandable"),
    *("stack", "forward"),
]
_BLOCKS = ["device", "address", "size", "requested", "state", "stack", "forward"]
_SMALL_SEGMENT = 2 << 20

Block = dict[str, Any]


def segments(process: ProcessTables, devices: dict[str, Device], stacks: Stacks) -> list[dict[str, Any]]:
    """All segments with their blocks; a block outside of them is a segment of its own."""
    made = [_segment(row, devices, stacks) for row in process.rows("segments", _SEGMENTS) if row[0] is not None]
    alone = []
    owners = _Owners(made)
    for device, *row in process.rows("blocks", _BLOCKS):
        if device is None:
            continue
        index, block = devices[device].index, _block(row, stacks)
        owner = owners.of(index, block["address"])
        if owner is None:
            alone.append(_segment_of(block, index))
        else:
            owner["blocks"].append(block)
    for segment in made:
        segment["blocks"] = _tiled(segment)
    return made + alone


class _Owners:
    """Finds the segment in which an address lies."""

    def __init__(self, made: Iterable[dict[str, Any]]) -> None:
        self._segments: dict[int, list[dict[str, Any]]] = {}
        for segment in made:
            self._segments.setdefault(segment["device"], []).append(segment)
        for mine in self._segments.values():
            mine.sort(key=lambda segment: segment["address"])
        self._starts = {device: [s["address"] for s in mine] for device, mine in self._segments.items()}

    def of(self, device: int, address: int) -> dict[str, Any] | None:
        """The segment, or None if the address lies in none."""
        at = bisect_right(self._starts.get(device, []), address) - 1
        if at < 0:
            return None
        segment = self._segments[device][at]
        return segment if address < segment["address"] + segment["total_size"] else None


def _segment(row: tuple[Any, ...], devices: dict[str, Device], stacks: Stacks) -> dict[str, Any]:
    device, address, size, allocated, active, requested, stream, kind, pool, expandable, stack, forward = row
    fields = {
        "device": devices[device].index,
        "address": address or 0,
        "total_size": size or 0,
        "allocated_size": allocated or 0,
        "active_size": active or 0,
        "requested_size": requested,
        "stream": stream or 0,
        "segment_type": kind or ("small" if (size or 0) <= _SMALL_SEGMENT else "large"),
        "segment_pool_id": pool_id(pool or "0,0"),
        "is_expandable": expandable,
        "frames": stacks.frames(stack) or [],
        "forward_frames": stacks.forward(forward),
        "blocks": [],
    }
    return {key: value for key, value in fields.items() if value is not None}


def _block(row: list[Any], stacks: Stacks) -> Block:
    address, size, requested, state, stack, forward = row
    lines = stacks.forward(forward)
    return {
        "address": address or 0,
        "size": size or 0,
        "requested_size": (size or 0) if requested is None else requested,
        "state": state or "active_allocated",
        "frames": stacks.frames(stack) or [],
        **({} if lines is None else {"forward_frames": lines}),
    }


def _segment_of(block: Block, device: int) -> dict[str, Any]:
    """A segment that is just this block."""
    held = 0 if block["state"] == "inactive" else block["size"]
    return {
        "device": device,
        "address": block["address"],
        "total_size": block["size"],
        "allocated_size": held,
        "active_size": held,
        "requested_size": block["requested_size"],
        "stream": 0,
        "segment_type": "small" if block["size"] <= _SMALL_SEGMENT else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": block["frames"],
        "blocks": [block],
    }


def _tiled(segment: dict[str, Any]) -> list[Block]:
    """The blocks of a segment with free ones between them, where the recording knew only those that were alive."""
    end, last = segment["address"], segment["address"] + segment["total_size"]
    tiles: list[Block] = []
    for block in segment["blocks"]:
        if block["address"] > end:
            tiles.append(_free(end, block["address"] - end))
        tiles.append(block)
        end = block["address"] + block["size"]
    return [*tiles, _free(end, last - end)] if end < last else tiles


def _free(address: int, size: int) -> Block:
    return {"address": address, "size": size, "requested_size": 0, "state": "inactive", "frames": []}
