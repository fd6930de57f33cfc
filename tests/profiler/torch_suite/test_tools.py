"""What PyTorch's own tests ask of a profile through other tools of torch: patterns, evaluations, execution traces."""

from __future__ import annotations

import gc
import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.autograd.profiler
import torch.autograd.profiler_legacy
import torch.profiler
from torch.profiler import _pattern_matcher as patterns
from torch.profiler._utils import BasicEvaluation

import torchreel
import torchreel.profiler
import torchreel.profiler.autograd
from tests.profiler.side_by_side import CPU, both, events, forward_and_backward, names
from torchreel.profiler import ExecutionTraceObserver, record_function, schedule


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
    assert f"{Path(__file__).name}:{line}" in text


@both
def test_torchs_evaluation_of_a_profile(module: ModuleType) -> None:
    with module.profile(activities=CPU) as prof:
        forward_and_backward()
    evaluation = BasicEvaluation(prof.profiler)
    for key, metrics in evaluation.metrics.items():
        children = sum(child.duration_time_ns for child in key.event.children)
        assert metrics.self_time_ns == key.event.duration_time_ns - children
    assert {"aten::mul", "MulBackward0"} <= {key.event.name for key in evaluation.metrics}
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


def nodes_of(path: Path) -> list[dict[str, Any]]:
    text = path.read_bytes()
    found: list[dict[str, Any]] = json.loads(gzip.decompress(text) if path.suffix == ".gz" else text)["nodes"]
    assert any("[pytorch|profiler|execution_trace|process]" in node["name"] for node in found)
    return found


@both
def test_an_execution_trace_that_the_environment_asks_for(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for variable in ("ENABLE_PYTORCH_EXECUTION_TRACE", "ENABLE_PYTORCH_EXECUTION_TRACE_EXTRAS"):
        monkeypatch.setenv(variable, "1")
    chosen = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=1)
    traces: list[Any] = []
    with module.profile(activities=CPU, schedule=chosen, on_trace_ready=traces.append) as prof:
        for step in range(6):
            with record_function(f"round {step}"):
                forward_and_backward()
            prof.step()
    observer = prof.execution_trace_observer
    path = Path(observer.get_output_file_path())
    # It holds the kernels that Inductor has compiled in this process, for other tests too.
    assert len(traces) == 1 and Path(observer.get_resources_dir(str(path))).is_dir()
    assert [node["name"] for node in nodes_of(path) if node["name"].startswith("round")] == ["round 3", "round 4"]
    categories = ("cpu_op", "user_annotation")
    shown = [event for event in events(prof, tmp_path) if event.get("cat") in categories]
    assert sorted(event["args"]["Record function id"] for event in shown) == record_ids(path)
    monkeypatch.setenv("ENABLE_PYTORCH_EXECUTION_TRACE", "0")
    assert module.profile(activities=CPU).execution_trace_observer is None


@both
def test_an_observer_may_come_and_go_while_there_is_a_profile(module: ModuleType, tmp_path: Path) -> None:
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "et.json.gz"))
    x = torch.ones(2)
    with module.profile(activities=CPU) as prof:
        for step in range(6):
            if step in (1, 4):
                observer.start()
            if step in (3, 5):
                observer.stop()
            with record_function(f"round {step}"):
                torch.autograd._record_function_with_args_exit(
                    torch.autograd._record_function_with_args_enter("odd values", [x], float("inf"), float("nan"))
                )
    observer.unregister_callback()
    found = nodes_of(tmp_path / "et.json.gz")
    assert [node["name"] for node in found if node["name"].startswith("round")] == ["round 1", "round 2", "round 4"]
    assert {len(node["inputs"]["values"][0][0]) for node in found if node["name"] == "odd values"} == {6}
    assert len([name for name in names(prof) if name.startswith("round")]) == 6


@both
def test_an_execution_trace_of_nested_tensors(module: ModuleType, tmp_path: Path) -> None:
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "et.json"))
    with module.profile(activities=CPU, execution_trace_observer=observer):
        for rows in (5, 6):
            torch.nested.nested_tensor_from_jagged(torch.ones(rows, 2), torch.tensor([0, 2, rows])).sin().cos()
    assert [node["name"] for node in nodes_of(tmp_path / "et.json")].count("aten::cos") >= 2


@both
def test_observers_of_files_of_their_own(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU):
        for step in range(3):
            observer = ExecutionTraceObserver().register_callback(str(tmp_path / f"{step}.json"))
            if step:  # the first records nothing
                observer.start()
            with record_function("round"):
                torch.ones(1)
            observer.stop()
            observer.unregister_callback()
    rounds = [[node["name"] for node in nodes_of(tmp_path / f"{step}.json")].count("round") for step in range(3)]
    assert rounds == [0, 1, 1]


@both
def test_ways_through_the_tree(module: ModuleType) -> None:
    x = torch.ones(2, 2)
    with module.profile(activities=CPU) as prof:
        for _ in range(3):
            x = x @ x + x
    roots = prof.profiler.kineto_results.experimental_event_tree()
    assert [root.name for root in roots] == ["aten::matmul", "aten::add"] * 3
    pattern = patterns.Pattern(prof)
    assert pattern.siblings_of(roots[0]) == ([], roots[1:]) and pattern.siblings_of(roots[-1]) == (roots[:-1], [])
    assert pattern.next_of(roots[0]) is roots[1] and pattern.prev_of(roots[1]) is roots[0]
    assert pattern.next_of(roots[-1]) is None and pattern.prev_of(roots[0]) is None
    product = roots[0].children[0]
    assert pattern.root_of(product.children[0]) is roots[0]
    assert pattern.siblings_of(product.children[0]) == ([], product.children[1:])
    assert [event.name for event in patterns.NamePattern(prof, "aten::mm").matched_events()] == ["aten::mm"] * 3
    assert BasicEvaluation(prof.profiler).compute_queue_depth() == []


def lines_of(roots: Any, depth: int = 0) -> list[str]:
    below = [[f"{'  ' * depth}{root.name}", *lines_of(root.children, depth + 1)] for root in roots]
    return [line for lines in below for line in lines]


def square_of_a_difference() -> None:
    weight, x = torch.ones(1, requires_grad=True), torch.ones(1)
    ((x - weight) ** 2).backward()


def ranges_of_which_one_stays_open() -> None:
    with record_function("outer"):
        with record_function("closed"):
            x = torch.ones(1, requires_grad=True)
        record_function("left open").__enter__()
        y = x + 1
        with record_function("last"):
            y.backward()


@pytest.mark.parametrize("program", [square_of_a_difference, ranges_of_which_one_stays_open])
@pytest.mark.parametrize("profile_memory", [False, True])
def test_the_tree_is_that_of_torch(program: Callable[[], None], profile_memory: bool) -> None:
    found = []
    for module in (torch.profiler, torchreel.profiler):
        program()
        gc.collect()
        with module.profile(activities=CPU, profile_memory=profile_memory) as prof:
            program()
        found.append(lines_of(prof.profiler.kineto_results.experimental_event_tree()))
    assert found[0] == found[1]
    assert any("[memory]" in line for line in found[1]) is profile_memory


X = torch.ones(20, 20)


def write_rows() -> None:
    for i in range(20):
        X[i] = i


def add_rows() -> None:
    total: Any = 0
    for i in range(20):
        total += X[i]


def add_rows_in_two_lines() -> None:
    total: Any = 1
    for i in range(20):
        row = torch.relu(X[i])
        total *= row


def write_ranges() -> None:
    for i in range(20):
        X[i, :] = torch.arange(20) + i


def multiply_again() -> None:
    product = X
    for _ in range(20):
        product = product @ X


@both
@pytest.mark.parametrize(
    ("program", "count"),
    [(write_rows, 1), (add_rows, 1), (add_rows_in_two_lines, 1), (write_ranges, 1), (multiply_again, 0)],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("with_stack", [False, True])
def test_loops_over_an_index(module: ModuleType, program: Callable[[], None], count: int, with_stack: bool) -> None:
    with module.profile(activities=CPU, with_stack=with_stack) as prof:
        program()
    assert len(patterns.ForLoopIndexingPattern(prof).matched_events()) == count


@both
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("foreach", [None, True])
def test_optimizers_of_single_tensors(module: ModuleType, kind: Any, foreach: bool | None) -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = kind(model.parameters(), lr=0.1, foreach=foreach)
    with module.profile(activities=CPU, with_stack=True) as prof:
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    assert len(patterns.OptimizerSingleTensorPattern(prof).matched_events()) == int(foreach is None)


@both
def test_loaders_without_workers(module: ModuleType) -> None:
    data = torch.ones(8, 2)
    with module.profile(activities=CPU, with_stack=True) as prof:
        for workers in (0, 1):
            next(iter(torch.utils.data.DataLoader(data, batch_size=2, num_workers=workers)))
    assert len(patterns.SynchronizedDataLoaderPattern(prof).matched_events()) == 1


@both
@pytest.mark.parametrize("owner", ["model", "optimizer"])
@pytest.mark.parametrize("options", [{}, {"set_to_none": False}], ids=["to none", "to zero"])
def test_gradients_set_to_zero(module: ModuleType, owner: str, options: dict[str, bool]) -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    with module.profile(activities=CPU, with_stack=True) as prof:
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        (model if owner == "model" else optimizer).zero_grad(**options)
    assert len(patterns.GradNotSetToNonePattern(prof).matched_events()) == len(options)


@both
@pytest.mark.parametrize(("bias", "normalized", "count"), [(True, True, 1), (False, True, 0), (True, False, 0)])
def test_biases_before_a_normalization(module: ModuleType, bias: bool, normalized: bool, count: int) -> None:
    layers: list[torch.nn.Module] = [torch.nn.Conv2d(3, 3, 3, bias=bias)]
    model = torch.nn.Sequential(*layers, *([torch.nn.BatchNorm2d(3)] if normalized else []))
    with module.profile(activities=CPU, with_stack=True, record_shapes=True) as prof:
        model(torch.ones(1, 3, 8, 8))
    assert len(patterns.Conv2dBiasFollowedByBatchNorm2dPattern(prof).matched_events()) == count


@both
def test_the_report_of_anti_patterns_as_json(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU, with_stack=True, record_shapes=True) as prof:
        anti_patterns()
    patterns.report_all_anti_patterns(prof, json_report_dir=str(tmp_path), print_enable=False)
    report = json.loads((tmp_path / "torchtidy_report.json").read_text())
    (entries,) = [entries for file, entries in report.items() if file.endswith(Path(__file__).name)]
    assert entries and all(set(entry) == {"line_number", "name", "url", "message"} for entry in entries)


@both
def test_correlation_ids_fit_into_32_bits(module: ModuleType) -> None:
    with module.profile(activities=CPU) as prof:
        torch.ones(1)
    assert all(0 < event.correlation_id() < 2**32 - 1 for event in prof.profiler.kineto_results.events())
