"""The drop-in on TorchScript, side by side with torch.profiler: modules, methods and lines within scripted code."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pytest
import torch
import torch.profiler

import torchreel
import torchreel.profiler

Calls: TypeAlias = list[tuple[str, dict[str, Any]]]
BOTH = (torch.profiler, torchreel.profiler)


def helper(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


class Adder(torch.nn.Module):
    def add(self, x: torch.Tensor) -> torch.Tensor:
        return x + x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.add(x) * 3


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.ReLU()])
        self.named = torch.nn.ModuleDict({"one": torch.nn.Tanh()})
        self.chain = torch.nn.Sequential(torch.nn.Sigmoid(), Adder())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc(x)
        for block in self.blocks:
            x = block(x)
        for module in self.named.values():
            x = module(x)
        x = helper(self.chain(x))
        return self.last(x)

    @torch.jit.export
    def last(self, x: torch.Tensor) -> torch.Tensor:
        return self.chain[1].add(x).cos()


class Outer(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).exp()


class CallsPython(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.in_python(self.fc(x)).exp()

    @torch.jit.ignore
    def in_python(self, x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    # TorchScript does not read the text of an annotation here.
    in_python.__annotations__.update({"x": torch.Tensor, "return": torch.Tensor})


def saved(model: torch.nn.Module) -> Any:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(model), file)
    file.seek(0)
    return torch.jit.load(file)


def in_range(model: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def call(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("around"):
            return model(x)

    return call


def trained(model: Any) -> Callable[[torch.Tensor], None]:
    return lambda x: model(x).sum().backward()


PROGRAMS: dict[str, Callable[[], Any]] = {
    "scripted": lambda: torch.jit.script(Small()),
    "traced": lambda: torch.jit.trace(Small(), torch.ones(2, 3)),
    "nested": lambda: torch.jit.script(Outer(Outer(Small()))),
    "saved": lambda: saved(Outer(Small())),
    "function": lambda: torch.jit.script(helper),
    "method": lambda: torch.jit.script(Small()).last,
    "forward": lambda: torch.jit.script(Small()).forward,
    "in a range": lambda: in_range(torch.jit.script(Small())),
    "calls python": lambda: torch.jit.script(CallsPython()),
    "trained": lambda: trained(torch.jit.script(Small())),
}


def profiled(module: ModuleType, program: Any, **options: Any) -> Any:
    """A profile of one call; torch.profiler keeps stacks only with `verbose`."""
    config = torch.profiler._ExperimentalConfig(verbose=True)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with module.profile(activities=activities, experimental_config=config, **options) as prof:
        program(torch.ones(2, 3))
    return prof


def traced_calls(prof: Any, path: Path) -> Calls:
    """The names and arguments of ops in the trace, in the order of their beginning."""
    prof.export_chrome_trace(str(path))
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "cpu_op"]
    return [(event["name"], event["args"]) for event in sorted(events, key=lambda event: event["args"]["Ev Idx"])]


def warmed(name: str, calls: int) -> Any:
    """A program that was called so often; TorchScript compiles it anew in the first calls."""
    torch.manual_seed(0)
    program = PROGRAMS[name]()
    for _ in range(calls):
        program(torch.ones(2, 3))
    return program


def script_calls(
    ours: list[tuple[str, Any]], theirs: list[tuple[str, Any]], argument: str
) -> list[tuple[str, Any, Any]]:
    """The calls for which torch.profiler has the argument: name, ours, torch's."""
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    both = zip(ours, theirs, strict=True)
    # torch.profiler takes nothing down for backward calls, and shows there what belongs to a call after them.
    known = ((name, own, other) for (name, own), (_, other) in both if "Backward" not in name)
    return [(name, own.get(argument), other[argument]) for name, own, other in known if argument in other]


# Each loaded model is compiled anew; others share what was compiled for their class.
@pytest.mark.parametrize(("name", "warm"), [*((name, 12) for name in PROGRAMS), ("saved", 0), ("saved", 1)])
def test_the_module_hierarchy_is_that_of_torch(tmp_path: Path, name: str, warm: int) -> None:
    theirs, ours = (profiled(module, warmed(name, warm), with_modules=True) for module in BOTH)
    calls = script_calls(*(traced_calls(prof, tmp_path / "trace.json") for prof in (ours, theirs)), "Module Hierarchy")
    assert len(calls) >= 2
    assert [call for call in calls if call[1] != call[2]] == []
    texts = {event.module_hierarchy for event in ours.events()}
    assert {text for _, text, _ in calls} <= texts


# Of a saved model torch shows the lines of the file in the archive, and we those of the user's source.
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "saved"])
def test_the_scripted_lines_of_a_stack_are_those_of_torch(tmp_path: Path, name: str) -> None:
    theirs, ours = (profiled(module, warmed(name, 12), with_stack=True) for module in BOTH)
    calls = script_calls(*(traced_calls(prof, tmp_path / "trace.json") for prof in (ours, theirs)), "Call stack")
    # torch's ends there; ours goes on with the Python lines that called the scripted code.
    scripted = [(own, other.rstrip(";")) for _, own, other in calls if other.startswith("/")]
    assert scripted
    assert [pair for pair in scripted if not f"{pair[0]};".startswith(f"{pair[1]};")] == []
    assert all(Path(__file__).name in own.removeprefix(other) for own, other in scripted)
    in_events = {";".join(event.stack) for event in ours.events()}
    assert {own for own, _ in scripted} <= in_events


def test_each_line_of_a_saved_model_has_a_file() -> None:
    prof = profiled(torchreel.profiler, PROGRAMS["saved"](), with_stack=True)
    frames = {frame for event in prof.events() for frame in event.stack}
    assert [frame for frame in frames if frame.startswith("(")] == []
    assert any(frame.startswith(f"{__file__}(") and frame.endswith(": last") for frame in frames)


def test_methods_of_other_modules_are_told_apart() -> None:
    prof = profiled(torchreel.profiler, torch.jit.script(Small()).last, with_modules=True)
    found = {event.name: event.module_hierarchy for event in prof.events()}
    assert found["aten::cos"] == "TOP(Small)::last."
    assert found["aten::add"] == "TOP(Small)::last.1(Adder)::add."


def test_eager_calls_around_scripted_ones_keep_their_paths() -> None:
    prof = profiled(torchreel.profiler, Outer(torch.jit.script(Small())), with_modules=True)
    found = {event.name: event.module_hierarchy for event in prof.events()}
    assert found["aten::exp"] == "Outer"
    assert "1(ReLU)::forward." in found["aten::relu"]


def test_a_program_without_torchscript_has_none() -> None:
    prof = profiled(torchreel.profiler, Outer(Small()), with_modules=True)
    assert prof.reel.table("ops", ["script_modules"])["script_modules"].null_count == len(prof.reel.ops)
    assert {event.module_hierarchy for event in prof.events() if event.name == "aten::relu"} == {"Outer.inner.blocks.1"}


def test_averages_and_flame_graphs_have_the_scripted_lines(tmp_path: Path) -> None:
    theirs, ours = (profiled(module, warmed("scripted", 12), with_stack=True) for module in BOTH)
    lines = [
        {tuple(row.stack): row.count for row in prof.key_averages(group_by_stack_n=1) if row.key == "aten::add"}
        for prof in (ours, theirs)
    ]
    assert lines[0] == lines[1]
    ours.export_stacks(str(tmp_path / "stacks"))
    innermost = {line.rpartition(" ")[0].rpartition(";")[2] for line in (tmp_path / "stacks").read_text().splitlines()}
    assert innermost & {frame.replace(" ", "_") for stack in lines[0] for frame in stack}
