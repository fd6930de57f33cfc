"""What PyTorch's own tests ask of a profiler, each asked of torch.profiler and of the drop-in."""

from __future__ import annotations

import collections
import gc
import json
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
import torch
import torch.autograd.profiler
import torch.profiler
import torch.utils.data.datapipes.iter as datapipes
from torch._C._profiler import ActiveProfilerType, _RecordFunctionFast
from torch.profiler import _pattern_matcher as patterns
from torch.profiler._utils import BasicEvaluation

import torchreel
import torchreel.profiler
import torchreel.profiler.autograd
from torchreel.errors import AlreadyRecordingError, OptionError, RecorderError
from torchreel.profiler import ExecutionTraceObserver, ProfilerActivity, _ExperimentalConfig, record_function, schedule

CPU = [ProfilerActivity.CPU]

both = pytest.mark.parametrize("module", [torch.profiler, torchreel.profiler], ids=["torch", "torchreel"])


def trace(prof: Any, path: Path) -> dict[str, Any]:
    prof.export_chrome_trace(str(path / "trace.json"))
    content: dict[str, Any] = json.loads((path / "trace.json").read_text())
    return content


def events(prof: Any, path: Path, category: str | None = None) -> list[dict[str, Any]]:
    return [event for event in trace(prof, path)["traceEvents"] if category in (None, event.get("cat"))]


def names(prof: Any) -> list[str]:
    return [event.name for event in prof.events()]


def forward_and_backward() -> None:
    first, second = (torch.ones(1, requires_grad=True) for _ in range(2))
    loss = torch.nn.functional.binary_cross_entropy_with_logits(torch.add(first, second), torch.ones(1))
    loss.backward()


@both
def test_fast_ranges_with_their_arguments(module: ModuleType, tmp_path: Path) -> None:
    x = torch.ones(4, 4)
    given = {"stream": 3, "grid": "g", "on": True, "rate": 1.5, "names": ["a", "b"], "sizes": [1, 2], "mixed": ["a", 1]}
    with module.profile(activities=CPU, record_shapes=True) as prof:
        with _RecordFunctionFast("plain"):
            x.add(x)
        with _RecordFunctionFast("with arguments", [x, x], given):
            x.add(x)
        with _RecordFunctionFast("annotated", (x,), {"scope": "user_scope", "stream": "none"}):
            pass
    found = {event.name: event for event in prof.events() if "aten" not in event.name}
    assert [event.name for event in found["plain"].cpu_children] == ["aten::add"]
    assert (found["plain"].input_shapes, found["plain"].kwinputs) == ([], {})
    assert found["with arguments"].input_shapes == [[4, 4], [4, 4]]
    assert found["with arguments"].kwinputs == {**given, "mixed": None}
    assert found["annotated"].is_user_annotation and not found["plain"].is_user_annotation
    args = {event["name"]: event for event in events(prof, tmp_path) if event["name"] in found}
    shown = {name: args["with arguments"]["args"].get(name) for name in given}
    assert shown == {**given, "sizes": None, "mixed": None}
    assert args["with arguments"]["cat"] == "cpu_op"
    assert args["annotated"]["cat"] == "user_annotation"
    assert "stream" not in args["annotated"]["args"]


def test_a_plain_recording_has_fast_ranges_of_every_thread(tmp_path: Path) -> None:
    def work() -> None:
        with _RecordFunctionFast("of a thread"):
            torch.ones(1)

    with torchreel.record(tmp_path / "r.reel"):
        with _RecordFunctionFast("of the main thread"):
            torch.ones(1)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    with _RecordFunctionFast("after it"):
        torch.ones(1)
    reel = torchreel.load(tmp_path / "r.reel")
    found = reel.sql("select name, thread from ops where name like 'of %' or name = 'after it' order by id").to_pylist()
    assert sorted(row["name"] for row in found) == ["of a thread", "of the main thread"]
    assert len({row["thread"] for row in found}) == 2
    assert not torch.autograd.profiler._is_profiler_enabled


def test_a_fast_range_may_outlive_the_recording(tmp_path: Path) -> None:
    reused = _RecordFunctionFast("reused")
    reused.__enter__()
    with torchreel.record(tmp_path / "a.reel"):
        reused.__exit__(None, None, None)  # it began before
        reused.__enter__()
    reused.__exit__(None, None, None)
    with torchreel.record(tmp_path / "b.reel"), reused:
        torch.ones(1)
    for name in ("a", "b"):
        rows = torchreel.load(tmp_path / f"{name}.reel").ops.to_pylist()
        assert [row["name"] for row in rows if row["name"] == "reused"] == ["reused"]


def test_phases_of_dynamo_are_seen(tmp_path: Path) -> None:
    with torchreel.profiler.profile(activities=CPU) as prof:
        torch.compile(lambda x: x.sin() + 1, backend="aot_eager")(torch.ones(3))
    assert any(name.endswith("(dynamo_timed)") for name in names(prof))
    torch._dynamo.reset()
    with torchreel.record(tmp_path / "r.reel"):
        torch.compile(lambda x: x.cos() + 1, backend="aot_eager")(torch.ones(3))
    found = torchreel.load(tmp_path / "r.reel").ops["name"].to_pylist()
    assert any(name.endswith("(dynamo_timed)") for name in found)
    assert "Torch-Compiled Region: 0/0" in found


@both
def test_a_program_can_ask_whether_it_is_profiled(module: ModuleType) -> None:
    kind = torch._C._autograd._profiler_type
    assert not torch.autograd._profiler_enabled()
    with module.profile(activities=CPU):
        assert torch.autograd._profiler_enabled() and torch.autograd.profiler._is_profiler_enabled
        assert kind() == ActiveProfilerType.KINETO
    assert not torch.autograd._profiler_enabled() and not torch.autograd.profiler._is_profiler_enabled
    assert kind() == ActiveProfilerType.NONE


def test_the_profiler_that_is_shown_does_not_stay() -> None:
    def fail() -> None:
        with torchreel.profiler.profile(activities=CPU):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not torch.autograd._profiler_enabled()
    prof = torchreel.profiler.profile(activities=CPU)
    prof.start()
    thread = threading.Thread(target=prof.stop)
    thread.start()
    thread.join()
    assert not torch.autograd._profiler_enabled()
    for module in (torchreel.profiler, torch.profiler, torchreel.profiler):
        with module.profile(activities=CPU) as again:
            assert torch.autograd._profiler_enabled()
            torch.ones(1)
        assert "aten::ones" in names(again)


def test_a_forked_child_is_not_profiled() -> None:
    with torchreel.profiler.profile(activities=CPU):
        pid = os.fork()
        if pid == 0:
            asked = torch.autograd._profiler_enabled() or torch.autograd.profiler._is_profiler_enabled
            os._exit(int(asked))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert torch.autograd._profiler_enabled() and torch.autograd.profiler._is_profiler_enabled


@both
def test_data_pipes_open_ranges(module: ModuleType) -> None:
    with module.profile(activities=CPU) as prof:
        list(datapipes.IterableWrapper(range(4)).map(str))
    assert any("IterableWrapper" in name for name in names(prof))
    assert any("Mapper" in name for name in names(prof))


@both
@pytest.mark.parametrize(
    ("warmup", "active", "repeat", "acc_events"),
    [(0, 1, 1, True), (0, 2, 0, True), (1, 2, 0, True), (9, 1, 0, True), (0, 2, 0, False), (2, 2, 2, False)],
)
def test_counts_of_a_schedule(module: ModuleType, warmup: int, active: int, repeat: int, acc_events: bool) -> None:
    expected = {(0, 1, 1): 1, (0, 2, 0): 10 if acc_events else 0, (1, 2, 0): 6, (9, 1, 0): 1, (2, 2, 2): 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = schedule(wait=0, warmup=warmup, active=active, repeat=repeat)
        with module.profile(activities=CPU, schedule=chosen, acc_events=acc_events) as prof:
            for _ in range(10):
                torch.add(1, 2)
                prof.step()
    counts = {average.key: average.count for average in prof.key_averages()}
    assert counts.get("aten::add", 0) == expected[warmup, active, repeat]


@both
def test_nothing_recorded_is_an_empty_result(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU) as prof:
        prof.toggle_collection_dynamic(False, CPU)
        torch.ones(1)
    assert len(prof.events()) == 0 and len(prof.key_averages()) == 0
    assert not events(prof, tmp_path, "cpu_op")


@both
def test_steps_without_start(module: ModuleType) -> None:
    prof = module.profile(activities=CPU, schedule=schedule(wait=1, warmup=1, active=2, repeat=1))
    for _ in range(6):
        torch.ones(1)
        prof.step()
    assert names(prof).count("aten::ones") == 2


@both
def test_steps_without_a_schedule_have_no_rows(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU) as prof:
        for _ in range(3):
            torch.ones(1)
            prof.step()
    assert not [event for event in events(prof, tmp_path) if event["name"].startswith("ProfilerStep")]


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
    assert "aten::mm" in names(prof)


@both
def test_unknown_types_of_activities(module: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="NO_SUCH_TYPE"):
        module.profile(activities=[{ProfilerActivity.CPU: ["NO_SUCH_TYPE"]}]).start()
    with pytest.raises(ValueError, match="more than once"):
        module.profile(activities=[ProfilerActivity.CPU, {ProfilerActivity.CPU: ["CPU_OP"]}])


@both
def test_timeouts(module: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="post_processing_timeout_s must be non-negative"):
        module.profile(activities=CPU, post_processing_timeout_s=-1.0).start()
    with module.profile(activities=CPU, post_processing_timeout_s=0.0) as prof:
        torch.ones(1)
    with caplog.at_level(logging.WARNING, "torch.autograd.profiler"):
        assert len(prof.events()) == 0
    assert "timed out" in caplog.text and "partial results" in caplog.text


def record_ids(path: Path) -> list[int]:
    nodes = json.loads(path.read_text())["nodes"]
    calls = [node for node in nodes if not node["name"].startswith("[pytorch|profiler|execution_trace|")]
    return sorted(item["value"] for node in calls for item in node["attrs"] if item["name"] == "rf_id")


@both
def test_an_execution_trace_joins_the_trace(module: ModuleType, tmp_path: Path) -> None:
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "et.json"))
    chosen = schedule(wait=1, warmup=1, active=2, repeat=1)
    with module.profile(activities=CPU, schedule=chosen, execution_trace_observer=observer) as prof:
        for _ in range(6):
            with record_function("round"):
                forward_and_backward()
            prof.step()
    written = [
        event["args"]["Record function id"]
        for event in events(prof, tmp_path)
        if "External id" in event.get("args", {})
    ]
    ids = record_ids(tmp_path / "et.json")
    assert len(ids) > 20 and 0 not in ids
    assert sorted(written) == ids


def test_calls_are_numbered_in_a_recording_only_for_an_observer(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel"):
        torch.ones(1)
    assert set(torchreel.load(tmp_path / "a.reel").ops["record_id"].to_pylist()) == {None}
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "et.json"))
    with torchreel.record(tmp_path / "b.reel"):
        observer.start()
        torch.ones(1)
        observer.stop()
    observer.unregister_callback()
    assert sorted(torchreel.load(tmp_path / "b.reel").ops["record_id"].to_pylist()) == record_ids(tmp_path / "et.json")


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


@both
def test_adjusted_steps_lie_within_calls(module: ModuleType, tmp_path: Path) -> None:
    def train_one_step(prof: Any) -> None:
        torch.ones(64, 64)
        prof.step()

    config = _ExperimentalConfig(adjust_profiler_step=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = schedule(wait=0, warmup=0, active=3, repeat=1)
    with module.profile(activities=CPU, with_stack=True, schedule=chosen, experimental_config=config) as prof:
        for _ in range(3):
            train_one_step(prof)
    found = events(prof, tmp_path)
    steps = [event for event in found if event["name"].startswith("ProfilerStep")]
    calls = [event for event in found if "train_one_step" in event["name"]]
    assert len(steps) == len(calls) == 3
    for step in steps:
        for call in calls:
            first, second = sorted((step, call), key=lambda event: event["ts"])
            overlap = second["ts"] < first["ts"] + first["dur"] < second["ts"] + second["dur"]
            assert not overlap or first["ts"] == second["ts"]


@both
def test_garbage_collection(module: ModuleType, tmp_path: Path) -> None:
    gc.collect()
    for wanted in (True, False):
        config = _ExperimentalConfig(record_python_gc_info=wanted)
        with module.profile(activities=CPU, with_stack=True, experimental_config=config) as prof:
            with record_function("before"):
                torch.ones(1)
            gc.collect()
            with record_function("after"):
                torch.ones(1)
        written = events(prof, tmp_path)
        found = {event["name"]: event for event in written}
        collections_ = [event for event in written if event["name"] == "Python GC"]
        assert {event["cat"] for event in collections_} <= {"python_function"}
        between = [
            event
            for event in collections_
            if found["before"]["ts"] + found["before"]["dur"] < event["ts"] < found["after"]["ts"]
        ]
        assert bool(between) is wanted
        assert wanted or not collections_
    assert torchreel._core.on_garbage not in gc.callbacks


def test_the_trace_of_events_is_valid_whatever_the_names(tmp_path: Path) -> None:
    odd = 'say "hi" \\ \n\t\x01é'
    with torchreel.profiler.profile(activities=CPU) as prof, record_function(odd):
        torch.ones(1)
    prof.events().export_chrome_trace(tmp_path / "trace.json")
    written = json.loads((tmp_path / "trace.json").read_text())
    assert [event["name"] for event in written][:2] == [odd, "aten::ones"]
    assert isinstance(prof.events(), torch.autograd.profiler_util.EventList)


def test_sequence_numbers_and_forward_threads_of_all_calls() -> None:
    found = []
    for module in (torch.profiler, torchreel.profiler):
        forward_and_backward()
        with module.profile(activities=CPU) as prof:
            forward_and_backward()
        first = min(event.sequence_nr for event in prof.events() if event.sequence_nr >= 0)
        found.append(
            [
                (event.name, event.sequence_nr - first if event.sequence_nr >= 0 else -1, event.fwd_thread)
                for event in prof.events()
            ]
        )
    assert found[0] == found[1]
    engine = [row for row in found[1] if row[0].startswith("autograd::engine::evaluate_function: Add")]
    assert engine and all(sequence >= 0 and thread > 0 for _, sequence, thread in engine)


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
    assert first.name == "aten::binary_cross_entropy_with_logits"


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


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float, y: torch.Tensor) -> torch.Tensor:
        return x + y * scale

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0], None, grads[0]


@both
def test_arguments_of_a_function_of_ones_own(module: ModuleType) -> None:
    with module.profile(activities=CPU, record_shapes=True) as prof:
        Scaled.apply(torch.ones(2, 3, requires_grad=True), 2.0, torch.ones(3))
    (event,) = [event for event in prof.events() if event.name == "Scaled"]
    assert event.input_shapes == [[2, 3], [], [3]] and event.concrete_inputs == [None, 2.0, None]


@pytest.mark.parametrize("older", [torch.autograd.profiler, torchreel.profiler.autograd], ids=["torch", "torchreel"])
def test_the_older_front_door(older: ModuleType, tmp_path: Path) -> None:
    options = {"record_shapes": True, "profile_memory": True, "use_cpu": True, "use_kineto": True}
    with older.profile(**options) as prof:
        assert str(prof) == "<unfinished torch.autograd.profile>"
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    assert isinstance(prof, torch.autograd.profiler.profile)
    assert [event.input_shapes for event in prof.function_events if event.name == "aten::mm"] == [[[2, 2], [2, 2]]]
    averages = {average.key: average for average in prof.key_averages(group_by_input_shape=True)}
    assert averages["aten::mm"].count == 1 and averages["aten::mm"].cpu_memory_usage == 16
    assert "aten::mm" in prof.table() and "aten::mm" in str(prof)
    assert prof.total_average().count == len(prof.function_events)
    assert prof.self_cpu_time_total > 0 and prof._stats.number_of_events == len(prof.function_events)
    assert "aten::mm" in [event["name"] for event in events(prof, tmp_path, "cpu_op")]
    with pytest.raises(RuntimeError, match="not reentrant"):
        prof.__enter__()
    with older.profile(enabled=False):
        torch.ones(1)
    with pytest.raises(ValueError, match="timeout_s must be non-negative"):
        prof._parse_kineto_results(prof.kineto_results, timeout_s=-1)


def test_the_older_front_door_is_ours() -> None:
    with torchreel.profiler.autograd.profile(use_cuda=False, with_flops=True, with_stack=True) as prof:
        torch.ones(1)
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
        with pytest.raises(AlreadyRecordingError):
            torchreel.profiler.profile(activities=CPU).start()
    assert "aten::ones" in prof.reel.ops["name"].to_pylist()
    assert [event.flops for event in prof.function_events if event.name == "aten::mm"] == [16]
    assert torchreel.profiler.autograd.record_function is torch.autograd.profiler.record_function
    with pytest.raises(RecorderError, match="enabled=False"):
        torchreel.profiler.autograd.profile(enabled=False).key_averages()
    with pytest.raises(OptionError, match="leaves nothing to record"), pytest.warns(UserWarning, match="CUDA"):
        torchreel.profiler.profile(activities=[ProfilerActivity.CUDA]).start()
    with pytest.raises(AttributeError, match=r"torchreel\.profiler\.autograd"):
        torchreel.profiler.autograd.nothing_of_this_name  # noqa: B018


@both
def test_the_low_level_class(module: ModuleType, tmp_path: Path) -> None:
    prof = module._KinetoProfile(activities=CPU, record_shapes=True)
    prof.preset_metadata_json("before", "[1]")
    prof.prepare_trace()
    torch.ones(1)
    prof.start_trace()
    prof.add_metadata("key", "value")
    prof.add_metadata_json("list", "[1, 2]")
    torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    prof.toggle_collection_dynamic(False, CPU)
    torch.ones(5).sin()
    prof.stop_trace()
    assert names(prof).count("aten::mm") == 1 and "aten::sin" not in names(prof)
    written = trace(prof, tmp_path)
    assert (written["before"], written["key"], written["list"]) == ([1], "value", [1, 2])
    assert isinstance(prof, torch.profiler._KinetoProfile)


def test_the_low_level_class_is_ours() -> None:
    prof = torchreel.profiler._KinetoProfile(activities=CPU)
    with pytest.raises(RecorderError, match="prepare_trace"):
        prof.start_trace()
    with pytest.raises(RecorderError, match="start_trace"):
        prof.stop_trace()
    prof.start()
    with pytest.raises(RecorderError, match="already been started"):
        prof.start()
    with pytest.raises(AlreadyRecordingError):
        torchreel.profiler.profile(activities=CPU).start()
    torch.ones(1)
    prof.stop()
    with pytest.raises(RecorderError, match="not running"):
        prof.stop()
    assert "aten::ones" in prof.reel.ops["name"].to_pylist()
    assert isinstance(torchreel.profiler.profile(activities=CPU), torchreel.profiler._KinetoProfile)


def anti_patterns() -> None:
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Flatten())
    model = torch.nn.Sequential(layers, torch.nn.Linear(108, 1))
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    data = torch.utils.data.TensorDataset(torch.rand(4, 3, 8, 8))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=2):
        model(batch).sum().backward()
        optimizer.step()
        model.zero_grad(set_to_none=False)


def test_anti_patterns_of_torch_are_found() -> None:
    kinds = (
        patterns.OptimizerSingleTensorPattern,
        patterns.SynchronizedDataLoaderPattern,
        patterns.GradNotSetToNonePattern,
        patterns.Conv2dBiasFollowedByBatchNorm2dPattern,
        patterns.MatMulDimInFP16Pattern,
        patterns.ExtraCUDACopyPattern,
    )
    found = []
    for module in (torch.profiler, torchreel.profiler):
        with module.profile(activities=CPU, with_stack=True, record_shapes=True) as prof:
            anti_patterns()
        found.append({kind.__name__: len(kind(prof).matched_events()) for kind in kinds})
    assert found[0] == found[1]
    assert found[1]["OptimizerSingleTensorPattern"] == found[1]["Conv2dBiasFollowedByBatchNorm2dPattern"] == 2


def test_the_report_of_anti_patterns_names_lines_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    with torchreel.profiler.profile(activities=CPU, with_stack=True, record_shapes=True) as prof:
        anti_patterns()
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    patterns.report_all_anti_patterns(prof)
    text = capsys.readouterr().out
    assert "Optimizer Single Tensor Pattern: 2 events matched" in text
    line = anti_patterns.__code__.co_firstlineno + 7
    assert f"test_profiler_torch_suite.py:{line}" in text


@both
def test_loops_over_an_index_are_found(module: ModuleType) -> None:
    x = torch.ones(20, 3)
    with module.profile(activities=CPU) as prof:
        for i in range(20):
            x[i] = i
    assert len(patterns.ForLoopIndexingPattern(prof).matched_events()) == 1


@both
def test_torchs_evaluation_of_a_profile(module: ModuleType) -> None:
    with module.profile(activities=CPU) as prof:
        forward_and_backward()
    evaluation = BasicEvaluation(prof.profiler)
    for key, metrics in evaluation.metrics.items():
        children = sum(child.duration_time_ns for child in key.event.children)
        assert metrics.self_time_ns == key.event.duration_time_ns - children
    assert {"aten::add", "AddBackward0"} <= {key.event.name for key in evaluation.metrics}
    assert evaluation.get_optimizable_events(2, print_enable=False) == []


@both
def test_correlation_ids_are_unique_over_profiles(module: ModuleType) -> None:
    seen: set[int] = set()
    for _ in range(3):
        with module.profile(activities=CPU) as prof:
            torch.mm(torch.ones(2, 2), torch.ones(2, 2))
        ids = [event.correlation_id() for event in prof.profiler.kineto_results.events()]
        assert ids and not seen & set(ids)
        seen |= set(ids)


@both
def test_events_are_made_when_they_are_asked_for(module: ModuleType) -> None:
    with module.profile(activities=CPU) as prof:
        torch.ones(1)
    stats = prof._stats()
    assert stats.number_of_events == stats.function_events_build_tree_call_duration_us == 0
    assert stats.profiling_window_duration_sec > 0
    assert len(prof.events()) == stats.number_of_events > 0


@pytest.mark.parametrize(
    "option",
    [
        {"profiler_metrics": ["kernel__time"]},
        {"enable_cuda_sync_events": True},
        {"disable_external_correlation": True},
        {"custom_profiler_config": "{}"},
        {"adjust_timestamps": True},
    ],
    ids=lambda option: next(iter(option)),
)
def test_options_about_devices_are_said_to_do_nothing(option: dict[str, Any]) -> None:
    torch.profiler.profiler._WARNINGS_SHOWN.clear()
    with pytest.warns(UserWarning, match=f"{next(iter(option))}=.* has no effect"):
        torchreel.profiler.profile(activities=CPU, experimental_config=_ExperimentalConfig(**option))


def frames_of_ours(entries: Iterable[str]) -> list[str]:
    package = str(Path(torchreel.__file__).parent)
    return [entry for entry in entries if package in entry]


def test_our_own_frames_are_not_shown(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    with torchreel.profiler.profile(
        activities=CPU, with_stack=True, profile_memory=True, schedule=schedule(wait=0, warmup=1, active=2, repeat=1)
    ) as prof:
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            prof.step()
    assert frames_of_ours(names(prof)) == []
    assert frames_of_ours(entry for event in prof.events() for entry in event.stack) == []
    assert frames_of_ours(json.dumps(event) for event in events(prof, tmp_path)) == []
    assert not [name for name in names(prof) if name.startswith("torch/profiler/profiler.py")]
    assert "ProfilerStep*" in names(prof)


def test_a_profile_function_of_the_program_sees_nothing_of_ours() -> None:
    seen: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        seen.append(frame.f_code.co_filename)

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    with torchreel.profiler.profile(activities=CPU, with_stack=True) as prof:
        sys.setprofile(watch)
        model(torch.ones(2, 4))
        sys.setprofile(None)
    assert seen and frames_of_ours(seen) == []
    assert "nn.Module: Sequential_0" in names(prof)
