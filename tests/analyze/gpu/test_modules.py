"""Time of devices by module, over kernels whose time can be added up by hand."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.gpu.traces import Trace
from torchreel.analyze.gpu.modules import NO_MODULE, module_device_time


def checkpointed(trace: Trace) -> None:
    """A layer in a network: forward 10 ns, run again in backward 20 ns, backward 40 ns; an optimizer of 80 ns."""
    net = trace.module("Net")
    layer = trace.module("Net.fc", net)
    trace.call("nn.Module: Net_0", 0, 100, "module", module=net)
    trace.call("nn.Module: Linear_0", 10, 90, "module", module=layer, line=3)
    trace.call("aten::mm", 20, 80, module=layer, line=3)
    forward = trace.launch(30, 40, module=layer)
    trace.call("MmBackward0", 200, 400, "backward", 1, module=layer, fwd=2, fwd_thread=0, line=3)
    trace.call("nn.Module: Linear_0", 210, 300, "module", 1, module=layer)
    again = trace.launch(220, 230, thread=1, module=layer)
    backward = trace.launch(310, 320, thread=1, module=layer)
    trace.call("aten::add_", 500, 510, line=9)
    optimizer = trace.launch(501, 505)
    trace.kernel("gemm", 50, 60, forward)
    trace.kernel("gemm", 300, 320, again)
    trace.kernel("gemm_t", 320, 360, backward)
    trace.kernel("add", 510, 590, optimizer, device="cuda:1")
    trace.kernel("early", 5, 10)


def test_forward_backward_and_recompute(tmp_path: Path) -> None:
    checkpointed(trace := Trace())
    reel = trace.write(tmp_path / "x.reel")
    rows = {row.pop("path"): row for row in module_device_time(reel).to_pylist()}
    assert list(rows) == [NO_MODULE, "Net", "Net.fc"]
    phases = {"forward_ns": 10, "backward_ns": 40, "recompute_ns": 20}
    assert rows["Net"] == {
        "class": "Net",
        "parent": None,
        "kernels": 0,
        "self_device_ns": 0,
        "device_ns": 70,
        **phases,
    }
    assert rows["Net.fc"] == {
        "class": "fc",
        "parent": "Net",
        "kernels": 3,
        "self_device_ns": 70,
        "device_ns": 70,
        **phases,
    }
    assert (rows[NO_MODULE]["kernels"], rows[NO_MODULE]["self_device_ns"]) == (2, 85)
    assert [row["device_ns"] for row in module_device_time(reel, device="cuda:1").to_pylist()] == [80]


def test_checkpoints_are_known_by_their_functions(tmp_path: Path) -> None:
    """Reentrant ones run forward, then backward, in a node of their own."""
    trace = Trace()
    trace.call("CheckpointFunctionBackward", 0, 100, "backward", 1)
    trace.call("aten::mm", 10, 20, thread=1)
    again = trace.launch(11, 12, thread=1)
    trace.call("MmBackward0", 30, 50, "backward", 1)
    backward = trace.launch(35, 36, thread=1)
    trace.call("AddBackward0", 100, 200, "backward", 1)
    trace.call("torch/utils/checkpoint.py(1111): unpack_hook", 110, 190, "python", 1)
    hook = trace.launch(120, 130, thread=1)
    for start, dur, launch in ((20, 1, again), (40, 2, backward), (140, 4, hook)):
        trace.kernel("k", start, start + dur, launch)
    (row,) = module_device_time(trace.write(tmp_path / "x.reel")).to_pylist()
    assert (row["forward_ns"], row["backward_ns"], row["recompute_ns"]) == (0, 2, 5)


def test_no_kernels(tmp_path: Path) -> None:
    trace = Trace()
    trace.call("aten::mm", 0, 1)
    assert module_device_time(trace.write(tmp_path / "x.reel")).num_rows == 0
