"""The drop-in for torch.profiler by itself; it is compared with torch in test_against_torch.py."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch

import torchreel
from torchreel.errors import OptionError, RecorderError, ReelExistsError, TorchreelError, UnavailableError
from torchreel.profiler import (
    ExecutionTraceObserver,
    ProfilerActivity,
    _ExperimentalConfig,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)

# As torch.profiler warns, so do we.
pytestmark = pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")

CPU = [ProfilerActivity.CPU]


def names(prof: profile) -> list[str]:
    return [event.name for event in prof.events()]


def test_a_program_that_only_changes_its_import(tmp_path: Path) -> None:
    handler = tensorboard_trace_handler(str(tmp_path / "log"), worker_name="me", use_gzip=True)
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(
        activities=CPU, schedule=plan, on_trace_ready=handler, record_shapes=True, profile_memory=True
    ) as prof:
        for _ in range(8):
            with record_function("step"):
                torch.ones(2, 2) @ torch.ones(2, 2)
            prof.step()
    table = prof.key_averages(group_by_input_shape=True).table(sort_by="self_cpu_time_total", row_limit=5)
    assert "aten::mm" in table
    assert "[[2, 2], [2, 2]]" in table
    assert "ProfilerStep*" in prof.key_averages().table()
    traces = sorted((tmp_path / "log").glob("me.*.pt.trace.json.gz"))
    assert len(traces) == 2
    with gzip.open(traces[1]) as file:
        steps = [event["name"] for event in json.load(file)["traceEvents"] if event["name"].startswith("ProfilerStep#")]
    assert steps == ["ProfilerStep#6", "ProfilerStep#7"]


def test_the_profile_is_one_of_torchs() -> None:
    assert isinstance(profile(), torch.profiler.profile)


def test_the_reel_has_the_steps_of_the_program_and_outlives_the_profile(tmp_path: Path) -> None:
    with profile(schedule=schedule(wait=2, warmup=1, active=2, repeat=1)) as prof:
        for _ in range(6):
            torch.ones(1)
            prof.step()
    prof.export_reel(tmp_path / "kept.reel")
    reel = prof.reel
    del prof
    steps = "select step from ops where name = 'aten::ones' order by id"
    for recorded in (reel, torchreel.load(tmp_path / "kept.reel")):
        assert recorded.sql(steps)["step"].to_pylist() == [3, 4]
        assert recorded.steps["step"].to_pylist() == [3, 4]


def test_a_reel_is_not_exported_over_another(tmp_path: Path) -> None:
    with profile() as prof:
        torch.ones(1)
    prof.export_reel(tmp_path / "kept.reel")
    with pytest.raises(ReelExistsError, match=r"kept\.reel already exists"):
        prof.export_reel(tmp_path / "kept.reel")


def test_a_profile_may_be_started_again_and_has_the_last_cycle() -> None:
    prof = profile()
    for function in (torch.neg, torch.abs):
        prof.start()
        function(torch.tensor(1.0))
        prof.stop()
    assert names(prof)[-1] == "aten::abs"
    assert "aten::neg" not in names(prof)


def test_acc_events_keeps_those_of_all_cycles() -> None:
    prof = profile(acc_events=True)
    x = torch.ones(2)
    for _ in range(3):
        prof.start()
        x.neg()
        prof.stop()
    assert names(prof) == ["aten::neg"] * 3
    assert [(row.key, row.count) for row in prof.key_averages()] == [("aten::neg", 3)]


def test_events_are_made_once() -> None:
    with profile() as prof:
        torch.ones(1)
    assert prof.events() is prof.events()


def test_attributes_of_torchs_backend_that_programs_use() -> None:
    with profile() as prof:
        torch.ones(1)
    assert prof.profiler.function_events is prof.events()
    assert prof.profiler.total_average().count == 3
    assert prof.profiler.self_cpu_time_total == pytest.approx(prof.events().self_cpu_time_total)
    assert "aten::ones" in prof.profiler.table()


def test_collection_can_be_toggled() -> None:
    x = torch.ones(2)
    with profile() as prof:
        x.neg()
        prof.toggle_collection_dynamic(False, CPU)
        x.abs()
        prof.toggle_collection_dynamic(False, CPU)
        prof.toggle_collection_dynamic(True, CPU)
        x.sign()
        prof.toggle_collection_dynamic(False, [ProfilerActivity.CUDA])
        x.exp()
        prof.toggle_collection_dynamic(False, CPU)
    assert names(prof) == ["aten::neg", "aten::sign", "aten::exp"]


def test_trace_ids_are_the_users_or_made_anew_for_each_cycle(tmp_path: Path) -> None:
    prof = profile()
    assert prof.get_trace_id() is None
    ids = set()
    for _ in range(2):
        prof.start()
        prof.stop()
        ids.add(prof.get_trace_id())
    assert len(ids) == 2
    with profile(custom_trace_id_callback=lambda: "mine") as prof:
        torch.ones(1)
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    assert prof.get_trace_id() == json.loads((tmp_path / "trace.json").read_text())["trace_id"] == "mine"


def test_hidden_modules_leave_their_time_and_memory_to_the_call_around_them() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    x = torch.ones(1, 2)
    with profile(with_modules=True, profile_memory=True) as prof, record_function("around"):
        y = model(x)
    around = prof.events()[0]
    assert [child.name for child in around.cpu_children] == ["aten::linear"]
    assert around.cpu_memory_usage == y.nbytes


def test_calls_of_python_functions_are_shown_with_stacks() -> None:
    def helper() -> torch.Tensor:
        return torch.ones(1)

    with profile(with_stack=True) as prof, record_function("range"):
        helper()
    ones = next(event for event in prof.events() if event.name == "aten::ones")
    assert ones.cpu_parent.name.endswith("helper")
    assert ones.cpu_parent.is_python_function
    assert ones.cpu_parent.cpu_parent.name == "range"
    assert "helper" in ones.stack[0]
    assert Path(__file__).name in ones.stack[0]
    assert not any("record_function.__e" in name for name in names(prof)), "they overlap with the range"


def test_an_execution_trace_is_observed_in_the_same_window(tmp_path: Path) -> None:
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "trace.et.json"))
    with profile(execution_trace_observer=observer):
        torch.ones(2).neg()
    nodes = {node["name"] for node in json.loads((tmp_path / "trace.et.json").read_text())["nodes"]}
    assert "aten::neg" in nodes
    assert not observer.is_registered


def test_events_are_partial_after_the_timeout() -> None:
    with profile(post_processing_timeout_s=0.0) as prof:
        torch.ones(1)
    assert names(prof) == []
    with pytest.raises(OptionError, match="post_processing_timeout_s must be non-negative, and is -1"):
        profile(post_processing_timeout_s=-1)


def test_counters_are_recorded_as_performance_events() -> None:
    with profile(experimental_config=_ExperimentalConfig(performance_events=["pagefaults"])) as prof:
        torch.ones(1)
    assert set(prof.reel.counters["name"].to_pylist()) == {"page-faults"}


def test_compiled_functions_name_their_ranges() -> None:
    compiled = torch.compile(torch.sin, backend="eager")
    x = torch.ones(2)
    compiled(x)
    with profile() as prof:
        compiled(x)
    assert any("Torch-Compiled Region" in name for name in names(prof))
    assert not torch.autograd.profiler._is_profiler_enabled


def test_mistakes_are_answered_with_a_sentence(tmp_path: Path) -> None:
    with profile() as finished:
        torch.ones(1)
    running = profile()
    running.start()
    not_running, no_results = "This profile is not running", "This profile has no results yet"
    mistakes = [
        (lambda: profile().stop(), RecorderError, not_running),
        (lambda: finished.stop(), RecorderError, not_running),
        (lambda: running.start(), RecorderError, "already been started"),
        (lambda: running.key_averages(), RecorderError, no_results),
        (lambda: running.events(), RecorderError, no_results),
        (lambda: profile().reel, RecorderError, no_results),
        (lambda: running.export_chrome_trace(str(tmp_path / "trace.json")), RecorderError, no_results),
        (lambda: finished.export_stacks(str(tmp_path / "stacks")), OptionError, "with_stack=True"),
        (lambda: finished.export_memory_timeline(str(tmp_path / "a.html")), UnavailableError, "deprecated by PyTorch"),
        (lambda: finished.export_chrome_trace(str(tmp_path / "no" / "trace.json")), TorchreelError, "no directory"),
    ]
    for mistake, kind, sentence in mistakes:
        with pytest.raises(kind, match=sentence) as caught:
            mistake()
        assert str(caught.value).endswith(".")
    running.stop()
    with pytest.raises(OptionError, match=r"add ProfilerActivity\.CPU"), pytest.warns(UserWarning, match="CUDA"):
        profile(activities=[ProfilerActivity.CUDA]).start()
