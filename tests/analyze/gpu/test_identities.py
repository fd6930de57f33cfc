"""What must add up, on every real trace: idle time, the critical path, the replay, modules and lines."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu_traces import FACTS, TRACES, gpu_reel
from torchreel.analyze.gpu.critical_path import pieces
from torchreel.analyze.gpu.idle import idle_causes
from torchreel.analyze.gpu.lines import line_device_time
from torchreel.analyze.gpu.model.graph import graph_of
from torchreel.analyze.gpu.model.run import device_runs
from torchreel.analyze.gpu.model.window import window_of
from torchreel.analyze.gpu.modules import module_device_time
from torchreel.analyze.gpu.what_if import what_if


@pytest.mark.parametrize("name", TRACES)
def test_all_adds_up(name: str) -> None:
    facts = FACTS[name]
    reel = gpu_reel(name)
    idle: dict[str, int] = {}
    for row in idle_causes(reel).to_pylist():
        idle[row["device"]] = idle.get(row["device"], 0) + row["ns"]
    devices = facts.get("devices", {})
    wanted = {f"cuda:{number}": device["idle_ns"] for number, device in devices.items() if device["idle_ns"]}
    assert {device: ns for device, ns in idle.items() if device.startswith("cuda:")} == wanted
    total = sum(reel.table("kernels", ["dur_ns"])["dur_ns"].to_pylist())
    assert not devices or total == facts["device_ns"]
    assert sum(module_device_time(reel)["self_device_ns"].to_pylist()) == total
    assert sum(line_device_time(reel)["self_device_ns"].to_pylist()) == total
    for run in device_runs(reel):
        graph = graph_of(run)
        window = window_of(graph, None)
        assert window is not None
        assert np.array_equal(graph.replayed(graph.lag), graph.time)
        path = pieces(graph)
        limits = [window.start, *(piece.end for piece in path)]
        assert [piece.start for piece in path] == limits[:-1], "no gap, no overlap"
        assert limits[-1] == window.end


def modules(name: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in module_device_time(gpu_reel(name)).to_pylist():
        if row["self_device_ns"]:
            last = "nn.Module: " + row["path"].rpartition(".")[2]
            found[last] = found.get(last, 0) + row["self_device_ns"]
    return found


@pytest.mark.parametrize(
    "name", ["h100_bert_small.json.gz", "h100_owlv2.json.gz", "h100_timesformer.json.gz", "mi300_vit.json.gz"]
)
def test_modules_of_inference_are_those_around_the_launch(name: str) -> None:
    gpu_reel(name)
    found = modules(name)
    wanted = {row["name"]: row["sum_ns"] for row in FACTS[name]["by_module"]}
    assert {module: found[module] for module in wanted} == wanted


def test_activation_checkpointing_is_seen() -> None:
    """All blocks of this ResNet are checkpointed: what they run again takes about as long as their forward."""
    rows = {row["path"]: row for row in module_device_time(gpu_reel("mi300_resnet_rank0of8.json.gz")).to_pylist()}
    blocks = [row for path, row in rows.items() if "CheckpointWrapper" in path.rpartition(".")[2]]
    assert len(blocks) == 4
    for row in blocks:
        assert 0.7 < row["recompute_ns"] / row["forward_ns"] < 1.1
        assert row["backward_ns"] > row["forward_ns"]
    (whole,) = (row for path, row in rows.items() if path.rpartition(".")[2] == "ResNet_0")
    assert whole["recompute_ns"] == sum(row["recompute_ns"] for row in blocks)


def test_faster_kernels_help_where_the_device_is_busy_and_not_where_the_host_is_late() -> None:
    """v100_absolute_ns is bound by its kernels, rtx2080_linear by launches."""
    gpu_reel("v100_absolute_ns.pt.trace.json.gz")
    speedups = {
        name: what_if(gpu_reel(name), [("kernel:.", 2.0)]).outcomes[0].speedup
        for name in ("v100_absolute_ns.pt.trace.json.gz", "rtx2080_linear.json.gz")
    }
    assert speedups["v100_absolute_ns.pt.trace.json.gz"] > 1.15
    assert speedups["rtx2080_linear.json.gz"] < 1.01
