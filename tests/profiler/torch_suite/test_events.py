"""What PyTorch's own tests ask of events, averages and tables."""

from __future__ import annotations

import logging
import re
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.autograd.profiler
import torch.autograd.profiler_legacy
import torch.profiler

import torchreel
import torchreel.profiler
import torchreel.profiler.autograd
from tests.profiler.side_by_side import CPU, both, both_older, events, forward_and_backward, names
from torchreel.profiler import _ExperimentalConfig, record_function


@both
def test_timeouts(module: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="post_processing_timeout_s must be non-negative"):
        module.profile(activities=CPU, post_processing_timeout_s=-1.0).start()
    with module.profile(activities=CPU, post_processing_timeout_s=0.0) as prof:
        torch.ones(1)
    with caplog.at_level(logging.WARNING, "torch.autograd.profiler"):
        assert len(prof.events()) == 0
    assert "timed out" in caplog.text and "partial results" in caplog.text


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
    engine = [row for row in found[1] if row[0].startswith("autograd::engine::evaluate_function: Mul")]
    assert engine and all(sequence >= 0 and thread > 0 for _, sequence, thread in engine)


@both
def test_events_are_made_when_they_are_asked_for(module: ModuleType) -> None:
    with module.profile(activities=CPU) as prof:
        torch.ones(1)
    stats = prof._stats()
    assert stats.number_of_events == stats.function_events_build_tree_call_duration_us == 0
    assert stats.profiling_window_duration_sec > 0
    assert len(prof.events()) == stats.number_of_events > 0


@both_older
def test_a_timeout_of_parsing(older: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    with older.profile(use_kineto=True) as prof:
        for _ in range(5):
            torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    whole, in_time = (len(prof._parse_kineto_results(prof.kineto_results, timeout_s=limit)) for limit in (None, 60.0))
    assert whole == in_time == len(prof.function_events) > 0
    with caplog.at_level(logging.WARNING, "torch.autograd.profiler"):
        assert len(prof._parse_kineto_results(prof.kineto_results, timeout_s=0.0)) < whole
    assert "timed out" in caplog.text and "partial results" in caplog.text


@both
def test_a_timeout_that_is_not_reached(module: ModuleType) -> None:
    with module.profile(activities=CPU, post_processing_timeout_s=60.0) as prof:
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    assert names(prof).count("aten::mm") == 1


@both_older
def test_what_the_profiler_says_of_itself(older: ModuleType) -> None:
    with older.profile(use_kineto=True) as prof:
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    assert "aten::mm" in str(prof)
    assert "aten::mm" in prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=-1)
    assert all(value > 0 for value in vars(prof._stats).values()) and len(vars(prof._stats)) == 7


@both_older
def test_units_of_time(older: ModuleType) -> None:
    with older.profile() as prof:
        torch.mm(torch.ones(64, 64), torch.ones(64, 64))
    averages = prof.key_averages()
    for unit, size in {"s": 1e6, "ms": 1e3, "us": 1.0}.items():
        table = averages.table(time_unit=unit)
        assert set(re.findall(r"\.\d{3}([mu]?s)\b", table)) == {unit}
        assert all(f"{row.cpu_time_total / size:.3f}{unit}" in table for row in averages)
        assert all(f"{row.cpu_time / size:.3f}{unit}" in table for row in averages)


@both_older
def test_stacks_are_lines_with_a_time(older: ModuleType, tmp_path: Path) -> None:
    config = _ExperimentalConfig(verbose=True)
    with older.profile(with_stack=True, use_kineto=True, experimental_config=config) as prof:
        torch.mm(torch.ones(64, 64), torch.ones(64, 64))
    prof.export_stacks(str(tmp_path / "stacks"))
    lines = (tmp_path / "stacks").read_text().splitlines()
    assert lines and all(int(line.rpartition(" ")[2]) > 0 for line in lines)


def scripted_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.matmul(x, y)


def scripted_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (scripted_product(x, y) + x).sum()


@both_older
def test_sources_of_eager_scripted_and_backward_calls(older: ModuleType) -> None:
    optimized = torch._C._get_graph_executor_optimize()
    torch._C._set_graph_executor_optimize(False)  # which would put one function into the other
    scripted = torch.jit.script(scripted_sum)
    config = _ExperimentalConfig(verbose=True)
    try:
        with older.profile(with_stack=True, use_kineto=True, experimental_config=config) as prof:
            x = torch.ones(3, 3, requires_grad=True)
            (2 * scripted(x, x + x)).backward()
    finally:
        torch._C._set_graph_executor_optimize(optimized)
    additions = [e for e in prof.function_events if "aten::add" in e.name or "AddBackward" in e.name]
    assert len([event for event in additions if "AddBackward" in event.name]) >= 2
    places = ("test_sources_of_eager", "scripted_sum", "scripted_product")
    for event in additions:
        assert any(Path(__file__).name in entry for entry in event.stack), event.name
        assert any(place in entry for entry in event.stack for place in places), event.name
    assert any("scripted_sum" in entry for event in additions for entry in event.stack)


def memory_by_name(prof: Any) -> dict[str, int]:
    return {row.key: row.cpu_memory_usage for row in prof.key_averages(group_by_input_shape=True)}


@both_older
def test_memory_of_calls_and_of_ranges(older: ModuleType) -> None:
    def make(as_mkldnn: bool) -> torch.Tensor:
        return torch.rand(10, 10).to_mkldnn() if as_mkldnn else torch.rand(10, 10)

    for as_mkldnn in (False, True):
        make(as_mkldnn)
        with older.profile(profile_memory=True, record_shapes=True, use_kineto=True) as prof:
            with record_function("take"):
                x = make(as_mkldnn)
            with record_function("give back"):
                del x
        found = memory_by_name(prof)
        assert found["aten::empty"] == found["aten::rand"] == found["take"] == 400
        assert found["give back"] == -400
    assert found["aten::to_mkldnn"] == 400


@both_older
def test_memory_outside_of_all_calls(older: ModuleType) -> None:
    with older.profile(profile_memory=True, use_kineto=True) as prof:
        x = torch.rand(10, 10)
        del x
    found = memory_by_name(prof)
    assert found["aten::rand"] == found["aten::empty"] == 400 and found["[memory]"] == -400


@both
def test_memory_in_a_trace(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU, profile_memory=True) as prof:
        x = torch.rand(10, 10)
        del x
    found = [event for event in events(prof, tmp_path) if event["name"] == "[memory]"]
    assert [event["args"]["Bytes"] for event in found] == [400, -400]
    for event in found:
        assert {"Addr", "Device Type", "Device Id", "Bytes"} <= set(event["args"])
        assert "dur" not in event and event["ph"] == "i"


@both_older
def test_flops_are_shown_also_beside_nested_tensors(older: ModuleType) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Linear(30, 30))
    ragged = torch.nested.nested_tensor([torch.ones(2, 5), torch.ones(3, 5)], layout=torch.jagged)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with older.profile(record_shapes=True, with_flops=True, use_kineto=True) as prof:
            model(torch.ones(2, 3, 32, 32))
            ragged + ragged
    assert re.search("Total [MG]?FLOPs", prof.key_averages(group_by_input_shape=True).table(row_limit=10))


@both
def test_shapes_within_nested_tensors(module: ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ragged = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])
    with module.profile(activities=CPU, record_shapes=True) as prof:
        torch.nn.functional.linear(ragged, torch.ones(4, 4))
    assert [event.input_shapes for event in prof.events() if event.name == "aten::mm"] == [[[5, 4], [4, 4]]]


@both
def test_values_of_arguments(module: ModuleType) -> None:
    x = torch.ones(3, 5)
    with module.profile(activities=CPU, record_shapes=True) as prof:
        x.as_strided([2, 7], [6, 1])
    (event,) = prof.events()
    assert event.input_shapes[0] == [3, 5] and event.concrete_inputs == [None, [2, 7], [6, 1], None]


@both
def test_averages_by_overload(module: ModuleType, tmp_path: Path) -> None:
    config = _ExperimentalConfig(capture_overload_names=True)
    x = torch.ones(3)
    with module.profile(activities=CPU, experimental_config=config) as prof:
        torch.sum(x, 0)
        torch.sum(x, 0, out=torch.empty(()))
    plain = [(row.key, row.count, row.overload_name) for row in prof.key_averages() if row.key == "aten::sum"]
    assert plain == [("aten::sum", 2, "")] and "Overload Name" not in prof.key_averages().table()
    by_overload = prof.key_averages(group_by_overload_name=True)
    found = {row.overload_name: row.count for row in by_overload if row.key == "aten::sum"}
    assert found == {"dim_IntList": 1, "IntList_out": 1} and "Overload Name" in by_overload.table()
    shown = {event["name"] for event in events(prof, tmp_path, "cpu_op")}
    assert {"aten::sum.dim_IntList", "aten::sum.IntList_out", "aten::empty.memory_format"} <= shown
