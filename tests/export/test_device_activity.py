"""What devices did, in the exports of a reel that was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.export.perfetto_oracle import Oracle
from tests.export.reels import EPOCH, ProcessBuilder, build
from torchreel.export import export
from torchreel.reel import Reel


def reel_with_devices(path: Path) -> Reel:
    """Two ranks with a device each, of the same number."""
    processes = []
    for rank in range(2):
        process = ProcessBuilder(f"rank{rank}", 100 + rank, rank=rank, world_size=2)
        train = process.range("train", 0, 90_000)
        op = process.op("aten::mm", 1_000, 20_000, parent=train)
        launch = process.op("cudaLaunchKernel", 2_000, 3_000, parent=op, kind="runtime", args='{"cbid": 211}')
        wait = process.op("cudaDeviceSynchronize", 70_000, 80_000, parent=train, kind="runtime")
        on = {"device": "cuda:0", "stream": 7}
        numbers = {"grid": [1, 2, 3], "block": [32, 1, 1], "occupancy": 12.5, "correlation": 5, "registers": 40}
        process.add(
            "kernels",
            **on,
            **numbers,
            **{"id": 0, "name": "gemm", "kind": "compute", "start_ns": EPOCH + 5_000, "dur_ns": 40_000},
            **{"op": op, "launch": launch, "args": '{"queued": 0, "own": "a \\"b\\""}'},
        )
        # Begins within the other, and ends after it: a viewer can draw the two on two rows only.
        late = {"id": 1, "name": "late", "kind": "communication", "start_ns": EPOCH + 30_000, "dur_ns": 30_000}
        process.add("kernels", **on, **late, args="no JSON")
        copied = {"id": 2, "name": "copy", "kind": "copy", "bytes": 64, "start_ns": EPOCH + 61_000, "dur_ns": 1_000}
        process.add("kernels", device="cuda:0", **copied)
        process.add("device_ranges", **on, name="train", start_ns=EPOCH + 5_000, dur_ns=55_000, op=train)
        process.add("syncs", device="cuda:0", kind="Context Sync", start_ns=EPOCH + 71_000, dur_ns=8_000, launch=wait)
        process.add("streams", **on, name="stream 7 (compute)")
        for time, value in ((10_000, 0.5), (50_000, 0.25)):
            process.add("samples", time_ns=EPOCH + time, device="cuda:0", name="utilization", value=value)
        processes.append(process)
    return build(path, *processes)


def test_chrome_has_streams_launches_ranges_waits_and_samples(tmp_path: Path) -> None:
    export(reel_with_devices(tmp_path / "r.reel"), tmp_path / "out.json", "chrome")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    found: dict[str, list[dict[str, Any]]] = {}
    for event in slices:
        found.setdefault(event["cat"], []).append(event)
    assert {kind: len(rows) for kind, rows in found.items() if kind != "Trace"} == {
        **{"user_annotation": 2, "cpu_op": 2, "cuda_runtime": 4, "kernel": 4, "gpu_memcpy": 2},
        **{"gpu_user_annotation": 2, "cuda_sync": 2},
    }
    gemm, late = (event for event in found["kernel"][:2])
    assert gemm["args"] | {"Ev Idx": 0} == {
        **{"External id": 3, "device": 0, "stream": 7, "correlation": 5, "registers per thread": 40},
        **{"est. achieved occupancy %": 12.5, "grid": [1, 2, 3], "block": [32, 1, 1], "queued": 0, "own": 'a "b"'},
        "Ev Idx": 0,
    }
    assert late["args"]["args"] == "no JSON"
    assert gemm["pid"] == late["pid"] and gemm["tid"] != late["tid"]
    assert found["cuda_runtime"][0]["args"]["cbid"] == 211
    assert found["gpu_user_annotation"][0]["args"]["External id"] == 2
    samples = [(event["args"]["value"], event["pid"] == gemm["pid"]) for event in events if event["ph"] == "C"]
    assert samples == [(0.5, True), (0.25, True), (0.5, False), (0.25, False)]
    arrows = [event for event in events if event.get("cat") == "ac2g"]
    assert [(event["ph"], event["tid"]) for event in arrows[:2]] == [("s", 100), ("f", gemm["tid"])]


@pytest.mark.browser
@pytest.mark.parametrize(("to", "ending"), [("chrome", "json"), ("perfetto", "pftrace")])
def test_perfetto_loses_nothing_of_it(to: str, ending: str, tmp_path: Path, oracle: Oracle) -> None:
    export(reel_with_devices(tmp_path / "r.reel"), tmp_path / f"out.{ending}", to)
    loaded = oracle.load(tmp_path / f"out.{ending}")
    assert loaded.problems() == []
    rows = loaded.query(
        f"SELECT name, ts - {EPOCH} AS at, dur FROM slice WHERE category IN "
        "('kernel', 'gpu_memcpy', 'gpu_user_annotation', 'cuda_sync') ORDER BY ts, dur, name"
    )
    base = rows[0]["at"] - 5_000  # JSON has no clock of its own
    expected = [("gemm", 5_000, 40_000), ("train", 5_000, 55_000), ("late", 30_000, 30_000), ("copy", 61_000, 1_000)]
    expected.append(("Context Sync", 71_000, 8_000))
    assert [(row["name"], row["at"] - base, row["dur"]) for row in rows] == [row for row in expected for _ in range(2)]
    assert loaded.flows().count(("cudaLaunchKernel", "gemm")) == 2
    assert loaded.value("SELECT count(*) FROM counter WHERE value IN (0.5, 0.25)") == 4
