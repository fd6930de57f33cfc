"""What PyTorch's own tests ask of compiled programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.autograd.profiler
import torch.autograd.profiler_legacy
import torch.profiler
from torch._dynamo.utils import dynamo_timed

import torchreel
import torchreel.profiler
import torchreel.profiler.autograd
from tests.profiler.side_by_side import CPU, both, both_older, names
from torchreel.profiler import ExecutionTraceObserver, record_function


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


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@both
def test_a_phase_of_ones_own(module: ModuleType) -> None:
    with module.profile(activities=CPU) as prof, dynamo_timed("own phase"):
        torch.ones(1)
    assert "own phase (dynamo_timed)" in names(prof)


def test_the_phases_are_those_that_torch_sees() -> None:
    found = []
    for module in (torch.profiler, torchreel.profiler):
        torch._dynamo.reset()
        with module.profile(activities=CPU) as prof:
            torch.compile(lambda x, y: x.sin() * y, backend="aot_eager")(torch.ones(2), torch.ones(2))
        found.append([name for name in names(prof) if name.endswith("(dynamo_timed)")])
    assert found[0] == found[1] and len(found[1]) > 3


@both
def test_phases_of_inductor_are_seen(module: ModuleType) -> None:
    with module.profile(activities=CPU) as prof:
        torch.compile(lambda x: x * 2 + x.sin(), backend="inductor")(torch.ones(4))
    found = [name.lower() for name in names(prof)]
    assert any("dynamo" in name for name in found) and any("inductor" in name for name in found)


@both
def test_shapes_that_are_not_known_yet(module: ModuleType) -> None:
    def multiply(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x @ y, x @ y])

    compiled = torch.compile(multiply, backend="aot_eager", dynamic=True, fullgraph=True)
    with torch._dynamo.config.patch(assume_static_by_default=False):
        with module.profile(activities=CPU, record_shapes=True) as compiling:
            compiled(torch.ones(3, 4), torch.ones(4, 5))
        with module.profile(activities=CPU, record_shapes=True) as running:
            compiled(torch.ones(5, 6), torch.ones(6, 7))
    products = [
        [event.input_shapes for event in prof.events() if event.name == "aten::mm"] for prof in (compiling, running)
    ]
    assert [[], []] in products[0] and [[3, 4], [4, 5]] in products[0]
    assert products[1] and all(shapes == [[5, 6], [6, 7]] for shapes in products[1])


@both
def test_an_execution_trace_of_shapes_that_are_not_known_yet(module: ModuleType, tmp_path: Path) -> None:
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "et.json"))
    compiled = torch.compile(lambda x, y: x @ y + y, backend="aot_eager", dynamic=True)
    with module.profile(activities=CPU, execution_trace_observer=observer):
        compiled(torch.ones(4, 4), torch.ones(4, 4))
    assert "aten::mm" in [node["name"] for node in json.loads((tmp_path / "et.json").read_text())["nodes"]]


@both
@both_older
def test_one_look_into_the_cache_for_each_call(module: ModuleType, older: ModuleType) -> None:
    compiled = torch.compile(lambda x: (x + 1) ** 2, backend="aot_eager")
    x = torch.ones(2, requires_grad=True)
    compiled(x)
    for profile in (module.profile, older.profile):
        with profile() as prof:
            compiled(x)
        found = prof.events() if profile is module.profile else prof.function_events
        assert [event.name for event in found].count("TorchDynamo Cache Lookup") == 1


@both
def test_looks_into_the_cache_by_steps_without_start(module: ModuleType) -> None:
    compiled = torch.compile(lambda x: x - 1, backend="aot_eager")
    prof = module.profile(activities=CPU, schedule=module.schedule(wait=1, warmup=1, active=2, repeat=1))
    for _ in range(6):
        compiled(torch.ones(2))
        prof.step()
    assert names(prof).count("TorchDynamo Cache Lookup") == 2


class Asks(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cos() if torch.autograd._profiler_enabled() else x.sin()


@both_older
def test_exported_programs_know_whether_there_was_a_profiler(older: ModuleType) -> None:
    x = torch.ones(3)
    assert torch.equal(torch._dynamo.export(Asks())(x).graph_module(x), x.sin())
    with older.profile():
        assert torch.equal(torch._dynamo.export(Asks())(x).graph_module(x), x.cos())


@both
def test_names_of_compiled_regions(module: ModuleType) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x.sum(0)

    compiled = torch.compile(broken, backend="eager")
    with module.profile(activities=CPU) as prof:
        compiled(torch.ones(3, 2))
        compiled(torch.ones(4, 2))
    regions = [name.removeprefix("Torch-Compiled Region: ") for name in names(prof) if "Torch-Compiled" in name]
    assert regions == ["0/0", "1/0", "0/1", "1/1"]


def one_after_the_other(x: torch.Tensor) -> torch.Tensor:
    with record_function("my first"):
        x = x.sin()
    with record_function("my second"):
        return x.cos()


def with_a_break_between(x: torch.Tensor) -> torch.Tensor:
    with record_function("my first"):
        x = x.sin()
    torch._dynamo.graph_break()
    with record_function("my second"):
        return x.cos()


def with_a_break_within(x: torch.Tensor) -> torch.Tensor:
    with record_function("my only"):
        x = x.sin()
        torch._dynamo.graph_break()
        return x.cos()


@both
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (one_after_the_other, ["my first", "my second"]),
        (with_a_break_between, ["my first", "my second"]),
        (with_a_break_within, ["my only"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_ranges_stay_in_compiled_programs(module: ModuleType, program: Callable[..., Any], expected: list[str]) -> None:
    x = torch.ones(3)
    with torch._dynamo.config.patch(capture_profiler_record_function=True):
        compiled = torch.compile(program, backend="aot_eager")
        compiled(x)
        with module.profile(activities=CPU) as prof:
            result = compiled(x)
    assert [name for name in names(prof) if name.startswith("my")] == expected
    assert torch.allclose(result, program(x))
