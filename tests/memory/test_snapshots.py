"""snapshot() and dump(): the schema, the file, and those who read it."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _memory_viz

import torchreel
from tests.alone import alone, run_alone, run_forked
from tests.memory.state import assert_tiled, blocks, heap_segments, live, replay, replay_segments, segments, trace
from tests.memory.viewer import PLAIN_OPCODES, assert_viewable
from torchreel import memory
from torchreel.errors import OptionError, RecorderError

ALLOCATORS = ("system", "caching")
OWN_KEYS = {"torch_version", "devices", "device_total_memory", "memory_fraction", "lost_events", "notes"}


def train(steps: int = 3) -> list[torch.Tensor]:
    """A little of everything: a model, its gradients, an optimizer, a range, and what stays alive."""
    model = torch.nn.Sequential(torch.nn.Linear(100, 3000), torch.nn.ReLU(), torch.nn.Linear(3000, 10))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        with torchreel.range("step"):
            optimizer.zero_grad()
            model(torch.randn(64, 100)).square().mean().backward()
            optimizer.step()
    return [*model.parameters(), torch.ones(5 * 2**20)]


def begin(allocator: str) -> None:
    if allocator == "caching":
        memory.use_caching_allocator()
    memory.record_history()


@pytest.mark.parametrize("allocator", ALLOCATORS)
@alone
def test_every_key_is_of_torchs_schema(allocator: str) -> None:
    begin(allocator)
    kept = train()
    memory.empty_cache()
    snapshot = memory.snapshot()
    assert snapshot.keys() == {
        "segments", "device_traces", "allocator_settings", "external_annotations",
    } | OWN_KEYS  # fmt: skip
    assert {frozenset(segment) for segment in snapshot["segments"]} == {
        frozenset(
            {
                "device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream",
                "segment_type", "segment_pool_id", "is_expandable", "frames", "blocks",
            }
        )
    }  # fmt: skip
    assert {frozenset(block) for segment in snapshot["segments"] for block in segment["blocks"]} == {
        frozenset({"address", "size", "requested_size", "state", "frames"})
    }
    assert {frozenset(event) for event in trace(snapshot)} == {
        frozenset(
            {"action", "addr", "size", "stream", "time_us", "compile_context", "user_metadata", "pool_id", "frames"}
        )
    }
    frames = [frame for event in trace(snapshot) for frame in event["frames"]]
    assert {frozenset(frame) for frame in frames} == {frozenset({"filename", "line", "name"})}
    assert {frozenset(row) for row in snapshot["external_annotations"]} == {
        frozenset({"name", "stage", "device", "time_us"})
    }
    assert snapshot["allocator_settings"].keys() == {
        "PYTORCH_CUDA_ALLOC_CONF", "max_split_size", "garbage_collection_threshold", "expandable_segments",
        "pinned_num_register_threads", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register",
        "graph_capture_record_stream_reuse", "max_round_threshold", "max_cached_size", "roundup_power2_divisions",
        "cpu_allocator",
    }  # fmt: skip
    assert snapshot["torch_version"] == torch.__version__
    assert snapshot["devices"] == ["cpu"]
    assert snapshot["device_total_memory"] == [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")]
    assert snapshot["memory_fraction"] == [1.0]
    assert snapshot["lost_events"] == [0]
    assert {event["pool_id"] for event in trace(snapshot)} == {(0, 0)}
    kinds = {event["action"] for event in trace(snapshot)}
    assert kinds >= {"alloc", "free_requested", "free_completed"}
    assert ("segment_alloc" in kinds) == (allocator == "caching")
    assert len(kept) == 5


@pytest.mark.parametrize("allocator", ALLOCATORS)
@alone
def test_the_viewer_can_draw_it(allocator: str) -> None:
    begin(allocator)
    kept = train()
    snapshot = memory.snapshot()
    assert_tiled(snapshot)
    assert_viewable(snapshot, with_segments=allocator == "caching")
    assert len(kept) == 5


def test_the_viewers_checks_can_fail() -> None:
    memory.record_history()
    tensor = torch.ones(100)
    snapshot = memory.snapshot()
    assert_viewable(snapshot, with_segments=False)
    segment = next(segment for segment in snapshot["segments"] if segment["address"] == tensor.data_ptr())
    segment["device"] = 1
    with pytest.raises(AssertionError):
        assert_viewable(snapshot, with_segments=False)
    segment["device"], segment["blocks"][0]["size"] = 0, 399
    with pytest.raises(AssertionError):
        assert_viewable(snapshot, with_segments=False)
    snapshot["segments"].remove(segment)
    with pytest.raises(AssertionError):
        assert_viewable(snapshot, with_segments=False)


@pytest.mark.parametrize("allocator", ALLOCATORS)
@alone
def test_a_file_is_what_snapshot_gives(allocator: str, tmp_path: Path) -> None:
    begin(allocator)
    kept = train(1)
    memory.record_history(skip_actions=["snapshot"])
    memory.dump(tmp_path / "a.pickle")
    memory.dump(str(tmp_path / "a.json"))
    given = memory.snapshot()
    pickled = pickle.loads((tmp_path / "a.pickle").read_bytes())
    written = json.loads((tmp_path / "a.json").read_text())

    def without_times(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_times(item) for key, item in value.items() if key != "time_us"}
        return [without_times(item) for item in value] if isinstance(value, list | tuple) else value

    # A time is an estimate that gets better from dump to dump.
    assert without_times(pickled) == without_times(given) == without_times(written)
    for event, other in zip(trace(pickled), trace(written), strict=True):
        assert abs(event["time_us"] - other["time_us"]) <= 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.pickle"]
    assert len(kept) == 5


def test_a_pickle_is_of_protocol_4_and_plain() -> None:
    memory.record_history()
    memory.set_metadata("x" * 70_000)
    kept = train(1)
    content = torchreel._core.snapshot_pickle(torch.__version__)
    opcodes = list(pickletools.genops(content))
    assert opcodes[0][0].name == "PROTO" and opcodes[0][1] == 4
    assert {opcode.name for opcode, _, _ in opcodes} <= PLAIN_OPCODES
    assert len(kept) == 5


def test_frames_are_shared_in_the_file() -> None:
    memory.record_history()
    sizes = []
    for _ in range(2):
        for _ in range(1000):
            torch.empty(64)
        sizes.append(len(torchreel._core.snapshot_pickle(torch.__version__)))
    # Whatever else lives in this process is in both.
    assert 0 < sizes[1] - sizes[0] < 3000 * 100, "100 bytes for an event, which has 30 frames"


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of each allocator, made in processes of their own."""
    directory = tmp_path_factory.mktemp("snapshots")
    for allocator in ALLOCATORS:
        script = (
            "from tests.memory.test_snapshots import *\n"
            f"begin({allocator!r}); kept = train(); memory.dump({str(directory / allocator)!r} + '.pickle')"
        )
        run_alone(script)
    return directory


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("command", ["stats", "trace", "trace_plot", "segment_plot"])
def test_torchs_own_commands_read_it(dumped: Path, allocator: str, command: str, tmp_path: Path) -> None:
    source = dumped / f"{allocator}.pickle"
    output = ["-o", tmp_path / "page.html"] if command.endswith("plot") else []
    main = "import runpy; runpy.run_module('torch.cuda._memory_viz', run_name='__main__', alter_sys=True)"
    result = run_forked(main, command, source, *output)
    assert result.returncode == 0, result.stderr
    snapshot = pickle.loads(source.read_bytes())
    if command == "stats":
        reserved = sum(segment["total_size"] for segment in snapshot["segments"])
        assert f"total_reserved: {_memory_viz._format_size(reserved)}" in result.stdout
    elif command == "trace":
        allocs = sum(event["action"] == "alloc" for event in trace(snapshot))
        assert len(re.findall(r"^\w+ = (?!cudaMalloc)", result.stdout, re.M)) == allocs
    else:
        assert "MemoryViz.js" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_torchs_own_flame_graphs_read_it(dumped: Path, allocator: str) -> None:
    # The drawing itself is done by a script from the net.
    snapshot = pickle.loads((dumped / f"{allocator}.pickle").read_bytes())
    lines = _memory_viz.memory(snapshot, format_flamegraph=str)
    total = sum(int(line.rsplit(" ", 1)[1]) for line in lines.splitlines())
    assert total == sum(segment["total_size"] for segment in snapshot["segments"])
    assert re.search(r"active_allocated;.*train", lines)
    lines = _memory_viz.segments(snapshot, format_flamegraph=str)
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines.splitlines()) == total
    assert isinstance(_memory_viz.compare([], snapshot["segments"], format_flamegraph=str), str)
    assert isinstance(_memory_viz.trace_plot(snapshot, filter_freed=True), str)


@alone
def test_the_trace_and_the_state_of_the_cache_agree() -> None:
    memory.use_caching_allocator()
    old = [torch.ones(1000), torch.ones(3 * 2**20)]
    memory.record_history()
    start = memory.snapshot()
    assert {tensor.data_ptr() for tensor in old} <= live(start).keys()
    kept = train()
    del old[1]
    memory.empty_cache()
    end = memory.snapshot()
    assert_tiled(end)
    assert replay(trace(end), live(start)) == live(end)
    assert replay_segments(trace(end), segments(start)) == segments(end)
    assert {event["action"] for event in trace(end)} >= {"segment_alloc", "segment_free"}
    assert len(kept) == 5 and len(old) == 1


@alone
def test_the_trace_and_the_state_of_the_cache_agree_with_four_threads() -> None:
    import threading

    from tests.memory.test_history import churn

    memory.use_caching_allocator(decay=0.02)
    memory.record_history(context="alloc")
    start = memory.snapshot()
    threads = [threading.Thread(target=churn, args=(3000, seed)) for seed in range(4)]
    for thread in threads:
        thread.start()
    middles = []
    for _ in range(5):
        middles.append(memory.snapshot())
        memory.empty_cache()
    for thread in threads:
        thread.join()
    for snapshot in [*middles, memory.snapshot()]:
        assert_tiled(snapshot)
        assert replay(trace(snapshot), live(start)) == live(snapshot)
        assert replay_segments(trace(snapshot), segments(start)) == segments(snapshot)


@alone
def test_segments_have_the_stack_that_made_them() -> None:
    memory.use_caching_allocator()
    memory.record_history()
    tensor = torch.empty(30 * 2**20, dtype=torch.uint8)
    snapshot = memory.snapshot()
    segment = next(segment for segment in snapshot["segments"] if segment["total_size"] >= 30 * 2**20)
    name = "test_segments_have_the_stack_that_made_them"
    assert segment["frames"][0]["name"] == segment["blocks"][0]["frames"][0]["name"] == name
    made = next(event for event in trace(snapshot) if event["action"] == "segment_alloc")
    assert made["addr"] == segment["address"] and made["frames"][0]["name"] == name
    assert tensor.data_ptr() == segment["blocks"][0]["address"]


@alone
def test_the_cache_is_shown_without_a_history_too() -> None:
    memory.use_caching_allocator()
    tensor = torch.empty(30 * 2**20, dtype=torch.uint8)
    snapshot = memory.snapshot()
    assert live(snapshot) == {tensor.data_ptr(): 30 * 2**20}
    assert snapshot["device_traces"] == [[]]
    assert all(block["frames"] == [] for block in blocks(snapshot))
    assert snapshot["notes"] == [None]
    assert snapshot["allocator_settings"]["cpu_allocator"] == "torchreel caching"


@alone
def test_blocks_of_both_allocators_are_shown_and_said() -> None:
    system = torch.empty(40_000, dtype=torch.uint8)
    memory.record_history()
    memory.use_caching_allocator()
    cached = torch.empty(50_000, dtype=torch.uint8)
    snapshot = memory.snapshot()
    assert live(snapshot)[system.data_ptr()] == 40_000
    assert live(snapshot)[cached.data_ptr()] == 50_000
    assert "before the caching allocator was in use" in snapshot["notes"][0]


@alone
def test_a_limit_is_shown_as_a_fraction() -> None:
    memory.use_caching_allocator()
    memory.set_limit("512MiB")
    snapshot = memory.snapshot()
    assert snapshot["memory_fraction"] == [pytest.approx(512 * 2**20 / snapshot["device_total_memory"][0])]


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is a directory: name a file for the snapshot"):
        memory.dump(tmp_path)
    with pytest.raises(
        RecorderError, match=r"The snapshot cannot be written to .*x\.pickle: No such file or directory"
    ):
        memory.dump(tmp_path / "nowhere" / "x.pickle")
    with pytest.raises(RecorderError, match="cannot be written"):
        memory.dump(tmp_path / ("x" * 300))
    assert list(tmp_path.iterdir()) == []


def test_a_dump_takes_the_place_of_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "a.pickle"
    path.write_text("old")
    memory.dump(path)
    assert heap_segments(pickle.loads(path.read_bytes())) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.pickle"]
