"""A memory snapshot of a run in three requests, by hand.

320 MiB are allocated and freed, 120 MiB are cut from their block, and for 320 MiB more there is no room: 640 MiB are
reserved where 440 are needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MIB = 1 << 20
FIRST, SECOND = 0x7F00_0000_0000, 0x7F00_4000_0000


def write(path: Path, **changes: Any) -> Path:
    """The snapshot as a file, with other values for some of its keys."""
    path.write_text(json.dumps({**cut(), **changes}))
    return path


def cut() -> dict[str, Any]:
    return {
        "segments": [
            segment(FIRST, [block(FIRST, 120, "active_allocated"), block(FIRST + 120 * MIB, 200, "inactive")]),
            segment(SECOND, [block(SECOND, 320, "active_allocated")]),
        ],
        "device_traces": [events()],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False},
        "torch_version": "2.13.0",
    }


def events(last: int = SECOND) -> list[dict[str, Any]]:
    """The history; `last` is where the last request ended up."""
    return [
        event("segment_alloc", FIRST, 320, 30),
        event("alloc", FIRST, 320, 30),
        event("free_requested", FIRST, 320, 31),
        event("free_completed", FIRST, 320, 31),
        event("alloc", FIRST, 120, 32),
        event("segment_alloc", SECOND, 320, 33),
        event("alloc", last, 320, 33),
    ]


def event(action: str, addr: int, size: int, line: int) -> dict[str, Any]:
    return {
        "action": action,
        "addr": addr,
        "size": size * MIB,
        "stream": 0,
        "time_us": 1_700_000_000_000_000 + line,
        "frames": [{"filename": "/src/train.py", "line": line, "name": "main"}],
    }


def segment(address: int, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    used = sum(block["size"] for block in blocks if block["state"] != "inactive")
    return {
        "device": 0,
        "address": address,
        "total_size": sum(block["size"] for block in blocks),
        "allocated_size": used,
        "active_size": used,
        "requested_size": used,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": [0, 0],
        "is_expandable": False,
        "blocks": blocks,
    }


def block(address: int, size: int, state: str) -> dict[str, Any]:
    requested = size * MIB if state != "inactive" else 0
    return {"address": address, "size": size * MIB, "requested_size": requested, "state": state, "frames": []}
