"""What graphs reserve and hold is in snapshots, statistics, histories and recordings, as a private pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import torchreel
from torchreel import graphs

BIG = 1 << 18  # elements: a megabyte


def doubled(x: Tensor) -> Tensor:
    return (x + 1).sin() * 2


def warm(function: Any, *args: Tensor) -> Any:
    for _ in range(4):
        result = function(*args)
    return result


def pools_of(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in snapshot["segments"] if tuple(one["segment_pool_id"]) != (0, 0)]


def block_at(snapshot: dict[str, Any], address: int) -> dict[str, Any]:
    (found,) = [
        block
        for segment in pools_of(snapshot)
        for block in segment["blocks"]
        if block["address"] <= address < block["address"] + block["size"]
    ]
    return found


def is_tiled(segment: dict[str, Any]) -> bool:
    at = segment["address"]
    for block in segment["blocks"]:
        if block["address"] != at:
            return False
        at += block["size"]
    return at == segment["address"] + segment["total_size"]


@pytest.fixture(autouse=True)
def alone() -> None:
    graphs.reset()


def test_an_output_is_a_block_of_a_private_pool() -> None:
    fast = torchreel.graphed(doubled)
    held = warm(fast, torch.ones(BIG))
    held = fast(torch.ones(BIG))
    snapshot = torchreel.memory.snapshot()
    block = block_at(snapshot, held.data_ptr())
    assert block["state"] == "active_allocated" and block["size"] >= held.nbytes
    assert all(map(is_tiled, pools_of(snapshot)))
    assert sum(one["total_size"] for one in pools_of(snapshot)) == graphs.pool_bytes()
    address = held.data_ptr()
    del held
    assert block_at(torchreel.memory.snapshot(), address)["state"] == "inactive"


def test_the_statistics_have_it() -> None:
    before = torchreel.memory.memory_stats()
    fast = torchreel.graphed(doubled)
    held = warm(fast, torch.ones(BIG))
    held = fast(torch.ones(BIG))
    during = torchreel.memory.memory_stats()
    grown = during["reserved_bytes.all.current"] - before["reserved_bytes.all.current"]
    assert grown >= 2 * held.nbytes
    own = {
        name: value
        for name, value in during.items()
        if name.startswith("reserved_bytes_by_private_pools.") and name.endswith(".all.current")
    }
    assert sum(own.values()) == graphs.pool_bytes()
    bytes_held = during["allocated_bytes.all.current"]
    del held
    assert bytes_held - torchreel.memory.memory_stats()["allocated_bytes.all.current"] >= 4 * BIG
    graphs.reset()
    after = torchreel.memory.memory_stats()
    assert after["reserved_bytes.all.current"] <= before["reserved_bytes.all.current"] + 4096


def test_a_history_has_its_events() -> None:
    torchreel.memory.record_history()
    try:
        fast = torchreel.graphed(doubled)
        held = warm(fast, torch.ones(BIG))
        held = fast(torch.ones(BIG))
        address = held.data_ptr()
        del held
        events = [event for trace in torchreel.memory.snapshot()["device_traces"] for event in trace]
    finally:
        torchreel.memory.record_history(None)
    of_pool = [event["action"] for event in events if tuple(event.get("pool_id", (0, 0))) != (0, 0)]
    assert "segment_map" in of_pool
    at = [event["action"] for event in events if event["addr"] == address]
    assert at[-1].startswith("free") and "alloc" in at


def test_a_recording_has_it(tmp_path: Path) -> None:
    fast = torchreel.graphed(doubled)
    warm(fast, torch.ones(BIG))
    with torchreel.record(tmp_path / "run.reel", memory=True):
        held = fast(torch.ones(BIG))
        address = held.data_ptr()
        del held
    allocs = torchreel.load(tmp_path / "run.reel").allocs.to_pylist()
    assert [row["action"] for row in allocs if row["addr"] == address][:1] == ["alloc"]


def test_an_op_that_keeps_a_tensor_is_seen_holding_it() -> None:
    kept: list[Tensor] = []
    with torch.library._scoped_library("torchreel_accounting", "DEF") as library:
        library.define("keep(Tensor x) -> Tensor")
        library.impl("keep", lambda x: kept.append(x) or x + 1, "CPU")
        fast = torchreel.graphed(lambda x: torch.ops.torchreel_accounting.keep(x * 2), trust=True, verify=0)
        for _ in range(3):
            fast(torch.ones(BIG))
        block = block_at(torchreel.memory.snapshot(), kept[-1].data_ptr())
        assert block["state"] == "active_allocated"
        kept.clear()


def test_a_backward_after_a_reset_is_within_the_pool() -> None:
    weight = torch.randn(256, 256, requires_grad=True)
    fast = torchreel.graphed(lambda x: (x @ weight).tanh())
    x = torch.randn(256, 256)
    for _ in range(4):
        fast(x).sum().backward()
    weight.grad = None
    out = fast(x)
    graphs.reset()
    out.sum().backward()
    assert all(map(is_tiled, pools_of(torchreel.memory.snapshot())))
