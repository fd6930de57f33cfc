"""What PyTorch's own tests ask of Chrome traces."""

from __future__ import annotations

import collections
import gzip
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch._dynamo
import torch.autograd.profiler
import torch.autograd.profiler_legacy
import torch.profiler
from torch.profiler import _trace_validator

import torchreel
import torchreel.profiler
import torchreel.profiler.autograd
from tests.profiler.side_by_side import CPU, both, both_older, events, forward_and_backward, names, strided, trace
from torchreel.profiler import ProfilerActivity, _ExperimentalConfig, record_function


@both
def test_the_last_rows_of_a_trace(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU) as prof:
        torch.ones(1)
    whole, order, start, end = events(prof, tmp_path)[-4:]
    assert [whole["name"], order["name"]] == ["PyTorch Profiler (0)", "process_sort_index"]
    assert order["args"] == {"sort_index": 536870912} and order["pid"] == "Spans"
    assert [start["name"], end["name"]] == ["Iteration Start: PyTorch Profiler", "Record Window End"]


@both
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["CPU_OP"], {"cpu_op"}),
        (["USER_ANNOTATION", "CPU_INSTANT_EVENT"], {"user_annotation", "cpu_instant_event"}),
        (["PYTHON_FUNCTION", "CUDA_RUNTIME"], {"python_function"}),
        ([], set()),
    ],
)
def test_filters_of_activities(module: ModuleType, wanted: list[str], expected: set[str], tmp_path: Path) -> None:
    filters = [{ProfilerActivity.CPU: wanted}]
    with module.profile(activities=filters, with_stack=True, profile_memory=True) as prof, record_function("mine"):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    categories = {event.get("cat") for event in events(prof, tmp_path)} - {None, "Trace"}
    assert categories == expected
    if module is torchreel.profiler:  # torch 2.13 reads names that it has freed, and fails at times
        assert "aten::mm" in names(prof)


@both
def test_overload_names(module: ModuleType, tmp_path: Path) -> None:
    config = _ExperimentalConfig(capture_overload_names=True)
    with module.profile(activities=CPU, experimental_config=config) as prof:
        torch.add(torch.ones(1), 1)
    shown = [event["name"] for event in events(prof, tmp_path, "cpu_op")]
    assert "aten::add.Tensor" in shown and "aten::ones" in shown
    assert "aten::add" in names(prof)


@both
def test_metadata_of_events(module: ModuleType, tmp_path: Path) -> None:
    for wanted in (True, False):
        config = _ExperimentalConfig(expose_kineto_event_metadata=wanted)
        with module.profile(activities=CPU, experimental_config=config) as prof:
            torch.add(1, 5)
        (event,) = [event for event in prof.events() if event.name == "aten::add"]
        (written,) = [event for event in events(prof, tmp_path, "cpu_op") if event["name"] == "aten::add"]
        number = written["args"]["Ev Idx"]
        assert event.metadata_json == (f'"Ev Idx": {number}' if wanted else "")


def test_the_trace_of_events_is_valid_whatever_the_names(tmp_path: Path) -> None:
    odd = 'say "hi" \\ \n\t\x01é'
    with torchreel.profiler.profile(activities=CPU) as prof, record_function(odd):
        torch.ones(1)
    prof.events().export_chrome_trace(tmp_path / "trace.json")
    written = json.loads((tmp_path / "trace.json").read_text())
    assert [event["name"] for event in written][:2] == [odd, "aten::ones"]
    assert isinstance(prof.events(), torch.autograd.profiler_util.EventList)


@both
def test_arrows_have_the_numbers_of_events(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU) as prof:
        forward_and_backward()
    arrows = [event for event in events(prof, tmp_path) if event.get("cat") == "fwdbwd"]
    linked = [event for event in prof.events() if event.flow_type == 1 and event.flow_id != 0]
    for phase, is_start in (("s", True), ("f", False)):
        written = {event["id"] for event in arrows if event["ph"] == phase}
        assert written == {event.flow_id for event in linked if event.flow_start == is_start} == {1, 2}
    first = next(event for event in linked if event.flow_start and event.flow_id == 1)
    assert first.name == "aten::softplus"


@both
def test_switches_of_torch(module: ModuleType, tmp_path: Path) -> None:
    torch._C._profiler._set_fwd_bwd_enabled_val(False)
    torch._C._profiler._set_record_concrete_inputs_enabled_val(False)
    try:
        with module.profile(activities=CPU, record_shapes=True) as prof:
            forward_and_backward()
            torch.ones(2, 3)
        written = events(prof, tmp_path)
    finally:
        torch._C._profiler._set_fwd_bwd_enabled_val(True)
        torch._C._profiler._set_record_concrete_inputs_enabled_val(True)
    assert not [event for event in written if event.get("cat") == "fwdbwd"]
    args = next(event["args"] for event in reversed(written) if event["name"] == "aten::ones")
    assert args["Concrete Inputs"] == ["", "", "", "", "False"]
    assert args["Input type"] == ["", "", "", "", "Scalar"]


@both
def test_ids_of_events_are_those_of_the_trace(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU) as prof, record_function("region"):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    written = [event for event in events(prof, tmp_path) if "External id" in event.get("args", {})]
    assert collections.Counter((event["name"], event["args"]["External id"]) for event in written) == (
        collections.Counter((event.name, event.external_id) for event in prof.events())
    )
    assert all(event.external_id > 0 for event in prof.events())


@both
def test_all_of_a_trace_lies_within_its_window(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU, with_stack=True, profile_memory=True) as prof:
        forward_and_backward()
    found = events(prof, tmp_path)
    by_name = {event["name"]: event for event in found}
    whole, end = by_name["PyTorch Profiler (0)"], by_name["Record Window End"]
    start = by_name["Iteration Start: PyTorch Profiler"]
    assert start["ts"] <= whole["ts"] and whole["ts"] + whole["dur"] <= end["ts"]
    timed = [event for event in found if "ts" in event and event is not start and event is not end]
    assert len(timed) > 10
    assert all(event["ts"] >= whole["ts"] for event in timed)
    assert all(event["ts"] + event["dur"] <= end["ts"] for event in timed if "dur" in event)


@both_older
def test_arguments_of_ops(older: ModuleType, tmp_path: Path) -> None:
    first, second = strided()
    with older.profile(record_shapes=True) as prof:
        x = torch.ones((6, 4), dtype=torch.float32)
        torch.cat([x, x])
        torch.add(first, second)
    args = {event["name"]: event["args"] for event in events(prof, tmp_path, "cpu_op")}
    assert args["aten::ones"]["Input type"] == ["ScalarList", "Scalar", "", "", "Scalar"]
    assert args["aten::ones"]["Concrete Inputs"] == ["[6, 4]", "6", "", "", "False"]
    assert args["aten::cat"]["Input Dims"] == [[[6, 4], [6, 4]], []]
    assert args["aten::cat"]["Input type"] == ["TensorList", "Scalar"]
    assert args["aten::add"]["Input Strides"] == [[9, 2], [13, 3], []]
    assert all(given["Record function id"] >= 0 for given in args.values())


@both
def test_arguments_of_events_are_those_of_the_trace(module: ModuleType, tmp_path: Path) -> None:
    first, second = strided()
    with module.profile(activities=CPU, record_shapes=True) as prof:
        torch.add(first, second)
        torch.cat([first, second])
    args = {event["name"]: event["args"] for event in events(prof, tmp_path, "cpu_op")}
    for event in prof.events():
        assert event.structured_input_shapes == args[event.name]["Input Dims"]
        assert event.structured_input_strides == args[event.name]["Input Strides"]
        assert event.input_dtypes == args[event.name]["Input type"]


@both
def test_strides_do_not_depend_on_the_switch_of_values(module: ModuleType, tmp_path: Path) -> None:
    first, second = strided()
    torch._C._profiler._set_record_concrete_inputs_enabled_val(False)
    try:
        with module.profile(activities=CPU, record_shapes=True) as prof:
            torch.add(first, second)
        (event,) = events(prof, tmp_path, "cpu_op")
    finally:
        torch._C._profiler._set_record_concrete_inputs_enabled_val(True)
    assert event["args"]["Input Strides"] == [[9, 2], [13, 3], []]


@both
@pytest.mark.parametrize("at_first", [True, False])
def test_values_are_kept_if_they_were_switched_on_when_the_op_ran(module: ModuleType, at_first: bool) -> None:
    x = torch.ones(3, 5)
    torch._C._profiler._set_record_concrete_inputs_enabled_val(at_first)
    try:
        with module.profile(activities=CPU, record_shapes=True) as prof:
            x.as_strided([2, 7], [6, 1])
            torch._C._profiler._set_record_concrete_inputs_enabled_val(not at_first)
    finally:
        torch._C._profiler._set_record_concrete_inputs_enabled_val(True)
    (event,) = prof.events()
    assert event.input_shapes == [[3, 5], [], [], []]
    assert event.concrete_inputs == ([None, [2, 7], [6, 1], None] if at_first else [None] * 4)


@both
def test_arrows_begin_at_calls(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU) as prof:
        forward_and_backward()
    found = events(prof, tmp_path)
    at = {event["ts"]: event["name"] for event in found if event["ph"] == "X"}
    ends = {(event["ph"], event["id"]): at[event["ts"]] for event in found if event.get("cat") == "fwdbwd"}
    assert ends["s", 1] == "aten::softplus" and ends["s", 2] == "aten::mul"
    assert ends["f", 1].endswith("SoftplusBackward0")
    assert ends["f", 2].endswith("MulBackward0") and len(ends) == 4


class Stage(torch.nn.Module):
    def __init__(self, *parts: torch.nn.Module) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x


@both
def test_python_functions_of_events_are_those_of_the_trace(module: ModuleType, tmp_path: Path) -> None:
    model = Stage(torch.nn.ReLU(), Stage(), torch.nn.ReLU())

    def around(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(x)
        return result

    config = _ExperimentalConfig(verbose=True)
    with module.profile(activities=CPU, with_stack=True, experimental_config=config) as prof:
        around(torch.ones(2))
    found = [event for event in prof.events() if event.is_python_function]
    written = events(prof, tmp_path, "python_function")
    assert len(found) == len(written) and all(event.time_range.elapsed_us() > 0 for event in found)
    args = {event["args"]["Python id"]: event["args"] for event in written}
    for event in found:
        given = args[event.python_id]
        assert (given["Python parent id"] or -1) == event.python_parent_id
        assert given.get("Python module id", -1) == event.python_module_id
    modules = {event.name: event.python_module_id for event in found if event.name.startswith("nn.Module")}
    assert modules == {f"nn.Module: {name}_{id}": id for name in ("Stage", "ReLU") for id in range(2)}
    (caller,) = [event for event in found if event.name.endswith(": around")]
    (called,) = [event for event in found if event.name == "nn.Module: Stage_0"]
    assert called.python_parent_id == caller.python_id


@both
def test_times_of_events_are_those_of_the_trace(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU) as prof:
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    written = trace(prof, tmp_path)
    start = prof.profiler.kineto_results.trace_start_ns() - written["baseTimeNanoseconds"]
    (event,) = [event for event in prof.events() if event.name == "aten::mm"]
    (shown,) = [event for event in written["traceEvents"] if event["name"] == "aten::mm"]
    assert round(event.time_range.start * 1000) + start == round(shown["ts"] * 1000)


@both
def test_kinds_of_events_are_the_categories_of_the_trace(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU, with_stack=True) as prof, record_function("mine"):
        forward_and_backward()
    written = {(event["name"], event["cat"]) for event in events(prof, tmp_path) if event["ph"] == "X"}
    assert {(event.name, event.activity_type) for event in prof.events()} <= written
    kinds = {event.activity_type for event in prof.events()}
    assert kinds == {"cpu_op", "user_annotation", "python_function"}


@both
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_exporter_in_python_writes_the_same(module: ModuleType, name: str, tmp_path: Path) -> None:
    with module.profile(activities=CPU) as prof:
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    prof.export_chrome_trace(str(tmp_path / name), use_python_export=True)
    text = (tmp_path / name).read_bytes()
    written = json.loads(gzip.decompress(text) if name.endswith(".gz") else text)["traceEvents"]
    ops = [event["name"] for event in written if event.get("cat") == "cpu_op"]
    assert ops == [event["name"] for event in events(prof, tmp_path, "cpu_op")]


@both_older
@pytest.mark.parametrize("use_kineto", [False, True])
def test_traces_of_the_older_door_are_valid(older: ModuleType, use_kineto: bool, tmp_path: Path) -> None:
    with older.profile(use_kineto=use_kineto) as prof:
        torch.add(torch.ones(1), 1)
    assert "aten::add" in [event["name"] for event in events(prof, tmp_path)]
    with older.profile(use_kineto=use_kineto) as empty:
        pass
    assert not events(empty, tmp_path, "cpu_op")


@both
def test_events_may_be_put_into_a_list_of_torchs(module: ModuleType, tmp_path: Path) -> None:
    x = torch.ones(2, 2, requires_grad=True)
    with module.profile(activities=CPU, with_stack=True) as prof:
        (x @ x).relu().sum().backward()
    copied = torch.autograd.profiler_util.EventList(prof.events())
    copied.export_chrome_trace(str(tmp_path / "copied.json"))
    assert "aten::matmul" in [event["name"] for event in json.loads((tmp_path / "copied.json").read_text())]
    assert "aten::matmul" in copied.table()


@both
def test_torchs_own_rules_find_nothing_in_a_trace(module: ModuleType, tmp_path: Path) -> None:
    x = torch.ones(2, 2, requires_grad=True)
    with module.profile(activities=CPU) as prof:
        for _ in range(3):
            (x @ x).relu().sum().backward()
    found = events(prof, tmp_path)
    engine = [event for event in found if event["name"].startswith("autograd::engine::evaluate_function")]
    assert len([event for event in engine if "Sequence number" in event["args"]]) == 9
    rules = [rule for name, rule in vars(_trace_validator).items() if name.startswith("_check_")]
    assert len(rules) == 6 and not [violation for rule in rules for violation in rule(found)]


class Adds(torch.nn.Module):
    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def inner(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.twice(x) + y

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.inner(x, y - 1)


class Calls(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.adds = Adds()
        self.last = torch.nn.ReLU()

    def finish(self, x: torch.Tensor) -> torch.Tensor:
        return self.last.forward(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.finish(self.adds.forward(x, x)).sigmoid()


@both
def test_modules_of_scripted_methods(module: ModuleType, tmp_path: Path) -> None:
    model = torch.jit.script(Calls())
    with module.profile(activities=CPU, with_modules=True) as prof:
        model(torch.ones(2))
    found = {event["name"]: event["args"].get("Module Hierarchy") for event in events(prof, tmp_path, "cpu_op")}
    inner = "TOP(Calls)::forward.adds(Adds)::forward."
    assert {name: found[f"aten::{name}"] for name in ("sub", "mul", "add", "relu", "sigmoid")} == {
        "sub": inner,
        "mul": f"{inner}SELF(Adds)::inner.SELF(Adds)::twice.",
        "add": f"{inner}SELF(Adds)::inner.",
        "relu": "TOP(Calls)::forward.SELF(Calls)::finish.last(ReLU)::forward.::relu.",
        "sigmoid": "TOP(Calls)::forward.",
    }
