"""The trace: Kineto's JSON, valid whatever the names in it are, with modules, stacks and backends at once."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.edge.formats.zoo import ZOO, save_lite
from tests.edge.nets import Calling, Net, batch
from torchreel import EdgeProfiler, current_edge_profiler

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


def ops(path: Path) -> list[dict[str, Any]]:
    return [event for event in events(path) if event.get("cat") == "cpu_op"]


def reporting() -> Calling:
    def forward(x: Tensor) -> Tensor:
        profiler = current_edge_profiler()
        assert profiler is not None
        now = time.time_ns() / 1000
        profiler.record_backend_event(now, now, 5, "conv", "npu")
        return x.exp()

    return Calling(forward)


def test_modules_and_stack_at_once(tmp_path: Path) -> None:
    net = Net()
    with EdgeProfiler(net, tmp_path / "run.json", with_modules=True, with_stack=True):
        net(batch())
    told = [event["args"] for event in ops(tmp_path / "run.json") if event["name"] == "aten::linear"]
    assert [args["Module Hierarchy"] for args in told] == ["Net.first", "Net.second"]
    assert all("nets.py" in args["Call stack"] and "Net.forward" in args["Call stack"] for args in told)


def test_a_lite_model_has_modules_and_stack_at_once(tmp_path: Path) -> None:
    from torch.jit.mobile import _load_for_lite_interpreter

    entry = ZOO["mobilenet"]
    model = _load_for_lite_interpreter(str(save_lite(entry, tmp_path / "model.ptl")))
    with EdgeProfiler(model, tmp_path / "run.json", with_modules=True, with_stack=True, with_flops=True):
        model(*entry.inputs())
    told = [event["args"] for event in ops(tmp_path / "run.json") if event["name"] == "aten::conv2d"]
    assert told[0]["Module Hierarchy"] == "MobileNet.features.0.conv"
    assert "zoo.py" in told[0]["Call stack"]
    assert all(args["Module Hierarchy"] and args["Call stack"] and args["FLOPs"] > 0 for args in told)
    assert len(told) == 32


def test_every_event_has_what_kineto_gives_it(tmp_path: Path) -> None:
    model = reporting()
    with EdgeProfiler(model, tmp_path / "run.json", True, True, True, True, True):
        model(batch())
    trace = json.loads((tmp_path / "run.json").read_text())
    assert trace["schemaVersion"] == 1
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] == "cpu_op"]
    assert {event["name"] for event in complete} >= {"aten::exp", "conv"}
    for event in complete:
        assert set(event) == {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"}
        assert event["dur"] >= 0
    assert all(event["ts"] >= 0 for event in trace["traceEvents"] if "ts" in event)


def test_torchs_own_validator_has_no_complaint(tmp_path: Path) -> None:
    from torch.profiler._trace_validator import validate_trace

    model = reporting()
    with EdgeProfiler(model, tmp_path / "run.json.gz", True, True, True, True, True):
        model(batch())
        model(batch())
    assert validate_trace(str(tmp_path / "run.json.gz")) == (True, [])


STRANGE = 'héllo "quo\\te" 層🎞'


def test_strange_names_of_files(tmp_path: Path) -> None:
    home = tmp_path / STRANGE
    home.mkdir()
    source = home / 'mo"d\\ul é.py'
    source.write_text("import torch\nclass Ünit(torch.nn.Module):\n    def forward(self, x):\n        return x.exp()\n")
    spec = importlib.util.spec_from_file_location("strange_model", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = nn.ModuleDict({'layer "one"\\ é': module.Ünit()})
    outer = Calling(lambda x: model['layer "one"\\ é'](x))
    outer.add_module("held", model)
    with EdgeProfiler(outer, home / "run.json", with_modules=True, with_stack=True):
        outer(batch())
    (told,) = [event["args"] for event in ops(home / "run.json") if event["name"] == "aten::exp"]
    assert told["Module Hierarchy"] == 'Calling.held.layer "one"\\ é'
    assert f"{source}(4): Ünit.forward" in told["Call stack"]


def test_a_lite_models_source_of_a_strange_name(tmp_path: Path) -> None:
    """The quotes of a traceback are what makes torch's own traces invalid."""
    from torch.jit.mobile import _load_for_lite_interpreter

    home = tmp_path / STRANGE
    home.mkdir()
    path = home / "model.ptl"
    torch.jit.script(Net().eval())._save_for_lite_interpreter(str(path), _save_mobile_debug_info=True)
    model = _load_for_lite_interpreter(str(path))
    with EdgeProfiler(model, home / "run.json", with_modules=True, with_stack=True):
        model(batch())
    told = [event["args"] for event in ops(home / "run.json") if event["name"] == "aten::linear"]
    assert [args["Module Hierarchy"] for args in told] == ["Net.first", "Net.second"]
    assert all("nets.py" in args["Call stack"] for args in told)


def test_events_do_not_cross_each_other(tmp_path: Path) -> None:
    """What viewers need to draw one track: of two events one holds the other, or they are apart."""
    entry = ZOO["transformer"]
    model = torch.jit.script(entry.model())
    with torch.no_grad():
        for _ in range(3):
            model(*entry.inputs())
        with EdgeProfiler(model, tmp_path / "run.json", with_modules=True, with_stack=True, profile_memory=True):
            model(*entry.inputs())
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in events(tmp_path / "run.json"):
        if event["ph"] == "X" and isinstance(event["pid"], int) and isinstance(event["tid"], int):
            start = round(event["ts"] * 1000)
            tracks.setdefault((event["pid"], event["tid"]), []).append((start, start + round(event["dur"] * 1000)))
    assert sum(map(len, tracks.values())) > 50
    for spans in tracks.values():
        open_ends: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)


def test_memory_in_the_trace(tmp_path: Path) -> None:
    model = Calling(torch.sin)
    with EdgeProfiler(model, tmp_path / "run.json", profile_memory=True):
        model(torch.ones(256))
    told = [event["args"] for event in events(tmp_path / "run.json") if event["name"] == "[memory]"]
    assert [(args["Bytes"], args["Total Allocated"]) for args in told] == [(1024, 1024), (-1024, 0)]
