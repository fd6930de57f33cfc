"""A small snapshot that has one of everything that torch 2.13 writes, and torchreel's own keys."""

from __future__ import annotations

import copy
from typing import Any

_FRAMES = [
    {"filename": "/src/model.py", "line": 12, "name": "forward"},
    {"filename": "/src/train.py", "line": 3, "name": "<module>"},
]
_TIME = 1_790_000_000_000_000


def _event(action: str, time: int, **fields: Any) -> dict[str, Any]:
    rest = {"compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0), "frames": _FRAMES}
    return {"action": action, "size": 1000, "stream": 0, "time_us": _TIME + time, **rest, **fields}


_SMALL: dict[str, Any] = {
    "segments": [
        {
            **{"device": 0, "address": 1 << 20, "total_size": 2 << 20, "allocated_size": 1024, "active_size": 1536},
            **{"requested_size": 1400, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0)},
            **{"is_expandable": False, "frames": _FRAMES},
            "blocks": [
                {
                    "address": 1 << 20,
                    "size": 1024,
                    "requested_size": 1000,
                    "state": "active_allocated",
                    "frames": _FRAMES,
                },
                {
                    **{"address": (1 << 20) + 1024, "size": 512, "requested_size": 400, "state": "active_pending_free"},
                    **{"frames": [], "forward_frames": ["first\n", "second\n"]},
                },
                {
                    **{"address": (1 << 20) + 1536, "size": (2 << 20) - 1536, "requested_size": 0},
                    **{"state": "inactive", "frames": []},
                },
            ],
        },
        {
            **{"device": 1, "address": 1 << 30, "total_size": 20 << 20, "allocated_size": 0, "active_size": 0},
            **{"requested_size": 0, "stream": 7, "segment_type": "large", "segment_pool_id": (1, 2)},
            **{"is_expandable": True, "frames": []},
            "blocks": [
                {"address": 1 << 30, "size": 20 << 20, "requested_size": 0, "state": "inactive", "frames": []},
            ],
        },
    ],
    "device_traces": [
        [
            _event("segment_alloc", 0, addr=1 << 20, size=2 << 20),
            _event("alloc", 1, addr=1 << 20),
            _event("alloc", 2, addr=(1 << 20) + 1024, size=400, forward_frames=["first\n", "second\n"]),
            _event("alloc", 3, addr=(1 << 20) + 1536, size=100, user_metadata="epoch 1"),
            _event("free_requested", 4, addr=(1 << 20) + 1536, size=100),
            _event("free_completed", 5, addr=(1 << 20) + 1536, size=100),
            _event("free_requested", 6, addr=(1 << 20) + 1024, size=400),
            _event("snapshot", 7, addr=0, size=1536),
        ],
        [_event("segment_map", 1, addr=1 << 30, size=20 << 20), _event("oom", 9, device_free=123, size=1 << 40)],
    ],
    "allocator_settings": {"max_split_size": -1, "expandable_segments": False, "roundup_power2_divisions": {"1": 0}},
    "external_annotations": [
        {"name": "step", "stage": "START", "device": 0, "time_us": _TIME},
        {"name": "step", "stage": "END", "device": 0, "time_us": _TIME + 9},
    ],
    "torch_version": "2.13.0",
    "devices": ["cuda:0", "cpu"],
    "device_total_memory": [1 << 34, None],
    "memory_fraction": [0.5, None],
    "lost_events": [0, 3],
    "notes": [None, "each block is a segment"],
}


def small_snapshot() -> dict[str, Any]:
    """A copy that may be changed."""
    return copy.deepcopy(_SMALL)
