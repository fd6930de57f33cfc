"""Snapshots: what a real one said comes back, and PyTorch's own readers take what is written."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.alone import run_alone, run_forked
from tests.export.reels import EPOCH, ProcessBuilder, build
from tests.ingest.snapshot.plain import plain_loads
from tests.snapshots import SNAPSHOTS, snapshot
from torchreel.export import export
from torchreel.ingest import import_snapshot, read_snapshot
from torchreel.reel import Reel, load

pytestmark = pytest.mark.programs

# What readers need although a file did not have it.
ADDED_TO_SEGMENT = {"frames", "segment_pool_id"}
ADDED_TO_BLOCK = {"address", "frames"}
ADDED = {"allocator_settings", "external_annotations"}


def exported(source: Path, tmp_path: Path, name: str = "out.pickle") -> bytes:
    import_snapshot(source, tmp_path / "in.reel")
    export(load(tmp_path / "in.reel"), tmp_path / name, "snapshot")
    return (tmp_path / name).read_bytes()


def in_todays_schema(content: Any) -> dict[str, Any]:
    """An older snapshot with its values under the names that torch 2.13 gives them."""
    content = {"segments": content, "device_traces": []} if isinstance(content, list) else content
    for segment in content["segments"]:
        for block in segment["blocks"]:
            history = block.pop("history", None)
            if history is not None:
                block["frames"] = history[0].get("frames", [])
    return content


def assert_same(found: dict[str, Any], expected: dict[str, Any], added: set[str], where: str) -> None:
    assert found.keys() - expected.keys() <= added, where
    assert expected.keys() <= found.keys(), where
    for key, value in expected.items():
        assert found[key] == value, f"{where}.{key}"


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.stem)
def test_every_field_of_a_real_snapshot_comes_back(path: Path, tmp_path: Path) -> None:
    expected = in_todays_schema(plain_loads(path.read_bytes()))
    data = exported(path, tmp_path)
    found = plain_loads(data)
    assert found.keys() - expected.keys() <= ADDED
    for key in ("device_traces", "allocator_settings", "external_annotations"):
        assert found[key] == expected.get(key, type(found[key])())
    assert len(found["segments"]) == len(expected["segments"])
    for index, (new, old) in enumerate(zip(found["segments"], expected["segments"], strict=True)):
        blocks, old_blocks = new.pop("blocks"), old.pop("blocks")
        assert_same(new, old, ADDED_TO_SEGMENT, f"segments[{index}]")
        assert len(blocks) == len(old_blocks)
        for block, old_block in zip(blocks, old_blocks, strict=True):
            assert_same(block, old_block, ADDED_TO_BLOCK, f"segments[{index}].blocks")
    # Frames are shared, so the file is not larger for having been through a reel.
    assert len(data) <= path.stat().st_size * 1.05 + 1000
    assert data[:2] == b"\x80\x04"


@pytest.mark.parametrize("name", ["linear_hopper", "three_gpus_expandable_oom", "state_only_a"])
def test_json_says_the_same_as_a_pickle(name: str, tmp_path: Path) -> None:
    data = exported(snapshot(name), tmp_path)
    export(load(tmp_path / "in.reel"), tmp_path / "out.json", "snapshot")
    as_json = msgspec.json.decode((tmp_path / "out.json").read_bytes())
    assert as_json == msgspec.json.decode(msgspec.json.encode(plain_loads(data)))
    tables = read_snapshot(tmp_path / "out.pickle")
    for table, rows in read_snapshot(tmp_path / "out.json").items():
        assert rows.to_pylist() == tables[table].to_pylist()


def cpu_reel(tmp_path: Path) -> Reel:
    """A run on the CPU: a block older than the recording, one that is freed, one that stays, and a range."""
    process = ProcessBuilder("host-1", 1, torch_version="2.13.0")
    process.add("frames", id=0, file="train.py", line=3, function="step")
    process.add("stacks", id=0, frames=[0])
    process.range("forward", 1_000, 9_000)
    process.alloc(0, 100, "preexisting", addr=64, total=100, category="parameter")
    process.alloc(2_000, 200, addr=4096, total=300, stack=0)
    process.alloc(3_000, 300, addr=8192, total=600, stack=0)
    process.alloc(4_000, 200, "free", addr=4096, total=400, alloc=1)
    process.alloc(5_000, None, "free", addr=12288, total=400)
    live = {"device": "cpu", "state": "active_allocated"}
    process.add("blocks", address=64, size=100, requested=100, alloc=0, **live)
    process.add("blocks", address=8192, size=300, requested=300, alloc=2, stack=0, **live)
    return build(tmp_path / "cpu.reel", process)


def test_a_recording_of_the_cpu(tmp_path: Path) -> None:
    export(cpu_reel(tmp_path), tmp_path / "cpu.pickle", "snapshot")
    frames = [{"filename": "train.py", "line": 3, "name": "step"}]
    start = EPOCH // 1000
    entry = {"stream": 0, "addr": 4096, "size": 200}
    segment = {
        **{"device": 0, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False},
    }
    state = "active_allocated"
    assert plain_loads((tmp_path / "cpu.pickle").read_bytes()) == {
        "segments": [
            {
                **segment,
                **{"address": 64, "total_size": 100, "allocated_size": 100, "active_size": 100, "requested_size": 100},
                "frames": [],
                "blocks": [{"address": 64, "size": 100, "requested_size": 100, "state": state, "frames": []}],
            },
            {
                **segment,
                **{"address": 8192, "total_size": 300, "allocated_size": 300, "active_size": 300},
                "requested_size": 300,
                "frames": frames,
                "blocks": [{"address": 8192, "size": 300, "requested_size": 300, "state": state, "frames": frames}],
            },
        ],
        "device_traces": [
            [
                {**entry, "action": "alloc", "time_us": start + 2, "frames": frames, "category": "unknown"},
                {
                    **{"action": "alloc", "addr": 8192, "size": 300, "stream": 0, "time_us": start + 3},
                    "frames": frames,
                    "category": "unknown",
                },
                {**entry, "action": "free_requested", "time_us": start + 4},
                {**entry, "action": "free_completed", "time_us": start + 4},
            ]
        ],
        "allocator_settings": {},
        "external_annotations": [
            {"stage": "START", "name": "forward", "device": 0, "time_us": start + 1},
            {"stage": "END", "name": "forward", "device": 0, "time_us": start + 9},
        ],
        "torch_version": "2.13.0",
        "devices": ["cpu"],
        "notes": ["The system's allocator keeps no segments: each block is shown as a segment of its own."],
    }


def test_a_snapshot_of_ours_comes_back_whole(tmp_path: Path) -> None:
    export(cpu_reel(tmp_path), tmp_path / "first.pickle", "snapshot")
    first = plain_loads((tmp_path / "first.pickle").read_bytes())
    first.update(device_total_memory=[2**34], memory_fraction=[0.5], lost_events=[7])
    (tmp_path / "first.pickle").write_bytes(pickle.dumps(first))
    second = plain_loads(exported(tmp_path / "first.pickle", tmp_path))
    for trace in first["device_traces"]:
        for event in trace:
            event.pop("category", None)  # all of them unknown
    assert second == first


def test_gaps_in_a_segment_are_free_blocks(tmp_path: Path) -> None:
    process = ProcessBuilder("host-1", 1)
    process.add("segments", device="cpu", address=1000, size=1000, allocated=300, active=300, requested=300)
    for address in (1000, 1300, 1400):
        process.add("blocks", device="cpu", address=address, size=100, requested=100, state="active_allocated")
    export(build(tmp_path / "r.reel", process), tmp_path / "out.pickle", "snapshot")
    found = plain_loads((tmp_path / "out.pickle").read_bytes())
    (segment,) = found["segments"]
    assert [(b["address"], b["size"], b["state"] == "inactive") for b in segment["blocks"]] == [
        *((1000, 100, False), (1100, 200, True), (1300, 100, False), (1400, 100, False), (1500, 500, True))
    ]
    assert "notes" not in found


def test_devices_of_several_processes_stay_apart(tmp_path: Path) -> None:
    processes = [ProcessBuilder(f"host-{pid}", pid) for pid in (1, 2, 3)]
    for process in processes[:2]:
        process.alloc(0, 100 * process.rows["processes"][0]["pid"])
    export(build(tmp_path / "r.reel", *processes), tmp_path / "out.pickle", "snapshot")
    found = plain_loads((tmp_path / "out.pickle").read_bytes())
    assert found["devices"] == ["host-1 cpu", "host-2 cpu"]
    assert [[event["size"] for event in trace] for trace in found["device_traces"]] == [[100], [200]]


def test_forward_frames_and_unknown_lines(tmp_path: Path) -> None:
    lines = ['  File "a.py", line 1, in f\n    x = y\\n\n', "", "\\"]
    frames = [{"filename": "a.py", "line": 2**64 - 1, "name": "f"}]
    event = {"action": "alloc", "addr": 1, "size": 2, "stream": 3, "frames": frames, "forward_frames": lines}
    content = {"segments": [], "device_traces": [[event]]}
    (tmp_path / "in.pickle").write_bytes(pickle.dumps(content))
    found = plain_loads(exported(tmp_path / "in.pickle", tmp_path))
    assert found["device_traces"] == content["device_traces"]


def test_nodes_of_fx_come_back(tmp_path: Path) -> None:
    node = {"fx_node_op": "call_function", "fx_node_name": "mul", "fx_node_target": "aten.mul.Tensor"}
    plain = {"filename": "fx_generated_x.py", "line": 7, "name": "forward"}
    frames = [
        {**plain, **node, "fx_original_trace": 'File "a.py"\n'},
        {**plain, "line": 8, **node},
        {**plain, "line": 9},
    ]
    event = {"action": "alloc", "addr": 1, "size": 2, "stream": 3, "frames": frames}
    content = {"segments": [], "device_traces": [[event]]}
    (tmp_path / "in.pickle").write_bytes(pickle.dumps(content))
    found = plain_loads(exported(tmp_path / "in.pickle", tmp_path))
    assert found["device_traces"] == content["device_traces"]


SCRIPT = """
import pickle, sys
from torch.cuda import _memory_viz as viz
for path in sys.argv[1:]:
    data = pickle.load(open(path, "rb"))
    plain = lambda text: text
    assert "segments: " in viz.segsum(data)
    assert ("entries" in viz.trace(data)) == any(data["device_traces"])
    assert ";" in viz.segments(data, plain) and ";" in viz.memory(data, plain)
    assert viz.compare(data["segments"], data["segments"], plain) == ""
    assert "MemoryViz.js" in viz.trace_plot(data) and "MemoryViz.js" in viz.segment_plot(data)
    viz.filter_alloc_free_pairs(data)
"""


def test_every_function_of_memory_viz_reads_them(tmp_path: Path) -> None:
    export(cpu_reel(tmp_path), tmp_path / "cpu.pickle", "snapshot")
    for path in SNAPSHOTS:
        (tmp_path / path.stem).mkdir()
        exported(path, tmp_path / path.stem)
    paths = sorted(str(path) for path in tmp_path.rglob("*.pickle"))
    assert len(paths) == len(SNAPSHOTS) + 1
    result = run_forked(SCRIPT, *paths)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("command", ["stats", "trace", "trace_plot", "segment_plot"])
def test_the_commands_of_memory_viz_read_it(command: str, tmp_path: Path) -> None:
    export(cpu_reel(tmp_path), tmp_path / "out.pickle", "snapshot")
    arguments = ["-o", "out.html"] if command.endswith("plot") else []
    run = "import runpy; runpy.run_module('torch.cuda._memory_viz', run_name='__main__')"  # as python -m does
    result = run_forked(run, command, "out.pickle", *arguments, directory=tmp_path)
    assert result.returncode == 0, result.stderr
    shown = (tmp_path / "out.html").read_text() if arguments else result.stdout
    assert {"stats": "total_allocated: 400.0B", "trace": "4 entries"}.get(command, "MemoryViz.js") in shown


def test_real_recordings_can_be_exported(tmp_path: Path) -> None:
    script = """
import torch, torchreel, sys
kept = torch.ones(1000)
with torchreel.record(sys.argv[1], memory=True, stacks=True):
    with torchreel.range("step"):
        x = torch.randn(64, 64)
        y = (x @ x).relu()
        del x
"""
    run_alone(script, tmp_path / "run.reel")
    export(load(tmp_path / "run.reel"), tmp_path / "out.pickle", "snapshot")
    found = plain_loads((tmp_path / "out.pickle").read_bytes())
    (trace,) = found["device_traces"]
    made = {event["addr"] for event in trace if event["action"] == "alloc" and event["size"] == 64 * 64 * 4}
    freed = {event["addr"] for event in trace if event["action"] == "free_completed"}
    living = {block["address"] for segment in found["segments"] for block in segment["blocks"]}
    assert made and made - freed <= living
    assert any(block["size"] == 4000 for segment in found["segments"] for block in segment["blocks"])
    assert [note["stage"] for note in found["external_annotations"] if note["name"] == "step"] == ["START", "END"]
    assert any(frame["filename"] == "<string>" for event in trace for frame in event.get("frames", []))
    run = run_forked(SCRIPT, tmp_path / "out.pickle")
    assert (run.returncode, run.stderr) == (0, "")


def test_a_snapshot_of_a_running_program_comes_back_whole(tmp_path: Path) -> None:
    script = """
import torch, torchreel
torchreel.memory.record_history()
kept = torch.nn.Linear(100, 100)
with torchreel.range("step"):
    kept(torch.randn(8, 100)).sum().backward()
torchreel.memory.dump("system.pickle")
torchreel.memory.use_caching_allocator()
tensors = [torch.randn(1000 * n) for n in range(50)]
del tensors[::3]
torchreel.memory.dump("caching.pickle")
torchreel.memory.record_history(None)
"""
    run_alone(script, directory=tmp_path)
    for name in ("system", "caching"):
        (tmp_path / name).mkdir()
        found = plain_loads(exported(tmp_path / f"{name}.pickle", tmp_path / name))
        assert found == plain_loads((tmp_path / f"{name}.pickle").read_bytes())
        assert found["devices"] == ["cpu"]
