"""Fragmentation: what is split, what is cached, and which lines pin mostly empty segments."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.memory.traces import Trace, user
from tests.snapshots import snapshot
from torchreel.analyze.memory.fragmentation import Pool, fragmentation
from torchreel.analyze.memory.model.device import device_memories
from torchreel.ingest import open_source

MIB = 1 << 20


def fragmented() -> Trace:
    trace = Trace()
    trace.alloc(0, MIB - 100, user(7, "pin"))
    trace.alloc(100 * MIB, 600, user(8, "small"))
    trace.segment(0, 40 * MIB, (MIB, "active_allocated"), (39 * MIB, "inactive"))
    trace.segment(50 * MIB, 20 * MIB, (20 * MIB, "inactive"))
    trace.segment(
        100 * MIB,
        2 * MIB,
        (1024, "active_allocated"),
        (512, "active_pending_free"),
        (2 * MIB - 1536, "inactive"),
        type="small",
    )
    trace.rows["blocks"][0]["requested"] = MIB - 100
    trace.rows["blocks"][3]["requested"] = 600
    return trace


def test_pools_of_fixed_segments(tmp_path: Path) -> None:
    found = fragmentation(fragmented().memory(tmp_path))
    assert found is not None
    assert found.pools == (
        Pool("small", 1, 2 * MIB, 1024, 512, 424, 2 * MIB - 1536, 0, 2 * MIB - 1536),
        Pool("large", 2, 60 * MIB, MIB, 0, 100, 39 * MIB, 20 * MIB, 39 * MIB),
    )
    total = found.total
    assert total.reserved == total.allocated + total.pending + total.split + total.cached
    assert (found.expandable, found.fixed, found.notable) == (False, True, True)


def test_what_pins_segments(tmp_path: Path) -> None:
    found = fragmentation(fragmented().memory(tmp_path))
    assert found is not None
    rows = found.pins.to_pylist()
    assert found.pinned_segments == 2
    assert rows[0] == {
        "name": "user/train.py:7 pin",
        "blocks": 1,
        "bytes": MIB,
        "segments": 1,
        "pinned": 39 * MIB,
    }
    assert sum(row["pinned"] for row in rows) == found.total.split


def test_an_expandable_segment_returns_whole_pages(tmp_path: Path) -> None:
    # GIVEN pages of 20 MiB of which the first is used in part, the second and third are free, the fourth in part
    trace = Trace()
    trace.segment(0, 80 * MIB, (5 * MIB, "active_allocated"), (70 * MIB, "inactive"), (5 * MIB, "active_allocated"), expandable=True)  # fmt: skip  # noqa: E501
    found = fragmentation(trace.memory(tmp_path))
    assert found is not None
    assert (found.total.cached, found.total.split) == (40 * MIB, 30 * MIB)


def test_the_system_allocator_has_none(tmp_path: Path) -> None:
    trace = Trace("cpu")
    trace.alloc(0, 8)
    trace.block(0, 8)
    assert fragmentation(trace.memory(tmp_path)) is None


def test_a_real_run_whose_activations_pin_its_segments() -> None:
    with open_source(snapshot("finetune_torch21_midrun")) as reel:
        (memory,) = device_memories(reel)
        found = fragmentation(memory)
    assert found is not None and found.notable
    total = found.total
    assert total.reserved == total.allocated + total.pending + total.split + total.cached
    assert "modeling_llama.py:649" in found.pins["name"][0].as_py()


def test_blocks_outside_of_every_segment_do_not_count(tmp_path: Path) -> None:
    trace = fragmented()
    trace.block(500 * MIB, 512)
    found = fragmentation(trace.memory(tmp_path))
    assert found is not None and found.total.reserved == 62 * MIB
    assert found.total.allocated == MIB + 1024
