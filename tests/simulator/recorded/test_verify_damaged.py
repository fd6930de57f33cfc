"""Histories that no allocator could have written: verify() ends, and says what does not match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchreel.allocator import verify

BASE = 0x7F0000000000
SEGMENT = 20 << 20
SMALL = 2 << 20


def snapshot(path: Path, events: list[tuple[str, int, int]]) -> Path:
    trace: list[dict[str, Any]] = [
        {"action": action, "addr": BASE + place * SEGMENT, "size": size, "stream": 0, "frames": []}
        for action, place, size in events
    ]
    path.write_text(json.dumps({"segments": [], "device_traces": [trace]}))
    return path


@pytest.mark.parametrize(
    "events",
    [
        [("segment_alloc", 0, SEGMENT), ("alloc", 0, 1), ("segment_alloc", 1, SEGMENT), ("segment_unmap", 2, SEGMENT)],
        [("segment_alloc", 0, SEGMENT), ("segment_free", 1, SEGMENT), ("alloc", 0, SMALL)],
        [("segment_map", 0, SEGMENT), ("segment_free", 0, SEGMENT), ("segment_map", 0, SEGMENT)],
        [("free_completed", 0, 512), ("segment_alloc", 0, SEGMENT), ("segment_free", 0, SEGMENT), ("alloc", 0, 1)],
    ],
)  # fmt: skip
def test_memory_that_nobody_asked_for(tmp_path: Path, events: list[tuple[str, int, int]]) -> None:
    found = verify(snapshot(tmp_path / "damaged.json", events)).devices["cuda:0"]
    assert found.segment_events.matched < found.segment_events.total
