"""TorchScript: the lines and the modules within scripted code."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch

import torchreel
from tests.alone import run_alone
from tests.record.rows import rows


def helper(x: torch.Tensor) -> torch.Tensor:
    return x.sin()  # within helper


def function(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()  # within function
    return helper(y)  # the call of helper


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.ReLU()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc(x)  # the call of fc
        for block in self.blocks:
            x = block(x)
        return self.last(x)

    def last(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh()


class Outer(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).exp()


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return number


def frames_of(reel: torchreel.Reel, name: str) -> list[tuple[str, int, str]]:
    """The frames of the first op of this name, the innermost first."""
    where = f"name = '{name}' order by o.id limit 1"
    (row,) = rows(reel, f"select s.frames from ops o join stacks s on o.stack = s.id where o.{where}")
    frames = {frame["id"]: frame for frame in reel.frames.to_pylist()}
    return [(Path(frames[i]["file"]).name, frames[i]["line"], frames[i]["function"]) for i in row["frames"]]


def modules_of(reel: torchreel.Reel) -> dict[str, str | None]:
    query = """
        select o.name, m.path from ops o left join modules m on o.module = m.id
        where o.kind = 'op' and o.depth = (select min(depth) from ops p where p.name = o.name) order by o.id
    """
    found: dict[str, str | None] = {}
    for row in rows(reel, query):
        found.setdefault(row["name"], row["path"])
    return found


def test_an_op_has_the_frames_of_scripted_code_innermost(tmp_path: Path) -> None:
    scripted = torch.jit.script(function)
    with torchreel.record(tmp_path / "a.reel", stacks=True):
        scripted(torch.ones(3))
        torch.ones(3).exp()
    reel = torchreel.load(tmp_path / "a.reel")
    me = Path(__file__).name
    sin = frames_of(reel, "aten::sin")
    assert sin[:2] == [(me, line_of("within helper"), "helper"), (me, line_of("the call of helper"), "function")]
    assert sin[2][0] == me and sin[2][2] == "test_an_op_has_the_frames_of_scripted_code_innermost"
    cos = frames_of(reel, "aten::cos")
    assert cos[0] == (me, line_of("within function"), "function")
    assert cos[1:] == sin[2:]
    exp = frames_of(reel, "aten::exp")  # after the scripted code
    assert exp[0][2] == "test_an_op_has_the_frames_of_scripted_code_innermost"


def test_what_an_op_of_scripted_code_calls_has_its_frames(tmp_path: Path) -> None:
    model = torch.jit.script(Small())
    with torchreel.record(tmp_path / "a.reel", stacks=True), torch.no_grad():
        model(torch.ones(2, 3))
    reel = torchreel.load(tmp_path / "a.reel")
    assert frames_of(reel, "aten::addmm") == frames_of(reel, "aten::linear")
    files = [frame[0] for frame in frames_of(reel, "aten::linear")]
    assert files[:2] == ["linear.py", Path(__file__).name]
    assert frames_of(reel, "aten::linear")[1][1] == line_of("the call of fc")


def test_a_saved_model_has_the_lines_of_the_users_source(tmp_path: Path) -> None:
    saved = io.BytesIO()
    torch.jit.save(torch.jit.script(function), saved)
    saved.seek(0)
    model = torch.jit.load(saved)
    with torchreel.record(tmp_path / "a.reel", stacks=True):
        model(torch.ones(3))
    frames = frames_of(torchreel.load(tmp_path / "a.reel"), "aten::sin")
    assert frames[0][:2] == (Path(__file__).name, line_of("within helper"))


def test_allocs_have_the_frames_of_scripted_code(tmp_path: Path) -> None:
    scripted = torch.jit.script(function)
    with torchreel.record(tmp_path / "a.reel", stacks=True, memory=True):
        scripted(torch.ones(1000))
    reel = torchreel.load(tmp_path / "a.reel")
    (row,) = rows(
        reel,
        "select s.frames[1] as frame from allocs a join stacks s on a.stack = s.id join ops o on a.op = o.id "
        "where o.name = 'aten::cos' and a.action = 'alloc'",
    )
    frames = {frame["id"]: frame for frame in reel.frames.to_pylist()}
    assert frames[row["frame"]]["line"] == line_of("within function")


def test_the_history_of_memory_has_the_frames_of_scripted_code() -> None:
    scripted = torch.jit.script(function)
    torchreel.memory.record_history(stacks="python")
    try:
        kept = scripted(torch.ones(5000))
        snapshot: Any = torchreel.memory.snapshot()
    finally:
        torchreel.memory.record_history(enabled=None)
    assert kept.numel() == 5000
    events = [event for trace in snapshot["device_traces"] for event in trace if event["action"] == "alloc"]
    innermost = [(Path(event["frames"][0]["filename"]).name, event["frames"][0]["line"]) for event in events]
    assert (Path(__file__).name, line_of("within function")) in innermost
    assert (Path(__file__).name, line_of("within helper")) in innermost


@pytest.mark.parametrize("make", [torch.jit.script, lambda model: torch.jit.trace(model, torch.ones(2, 3))])
def test_ops_have_the_modules_that_eager_ones_would_have(tmp_path: Path, make: Any) -> None:
    eager = Small()
    scripted = make(eager)
    found = []
    for number, model in enumerate((eager, scripted)):
        with torchreel.record(tmp_path / f"{number}.reel", modules=True), torch.no_grad():
            model(torch.ones(2, 3))
        found.append(modules_of(torchreel.load(tmp_path / f"{number}.reel")))
    assert found[1]["aten::linear"] == found[0]["aten::linear"] == "Small.fc"
    assert found[1]["aten::relu"] == found[0]["aten::relu"] == "Small.blocks.1"
    assert found[1]["aten::tanh"] == found[0]["aten::tanh"] == "Small"
    classes = rows(torchreel.load(tmp_path / "1.reel"), "select path, class from modules order by path")
    assert {"path": "Small", "class": "Small"} in classes
    assert {"path": "Small.fc", "class": "Linear"} in classes


def test_a_scripted_module_within_an_eager_one(tmp_path: Path) -> None:
    model = Outer(torch.jit.script(Small()))
    with torchreel.record(tmp_path / "a.reel", modules=True), torch.no_grad():
        model(torch.ones(2, 3))
        torch.ones(3).cos()
    found = modules_of(torchreel.load(tmp_path / "a.reel"))
    assert found["aten::linear"] == "Outer.inner.fc"
    assert found["aten::tanh"] == "Outer.inner"
    assert found["aten::exp"] == "Outer"
    assert found["aten::cos"] is None


def test_work_of_torch_jit_fork_has_its_frames(tmp_path: Path) -> None:
    def forked(x: torch.Tensor) -> torch.Tensor:
        future = torch.jit.fork(helper, x)
        return torch.jit.wait(future)

    scripted = torch.jit.script(forked)
    with torchreel.record(tmp_path / "a.reel", stacks=True):
        scripted(torch.ones(3))
    frames = frames_of(torchreel.load(tmp_path / "a.reel"), "aten::sin")
    assert frames[0] == (Path(__file__).name, line_of("within helper"), "helper")


FROZEN = """
import gc, torch, torchreel, torchreel.profiler
from tests.profiler.test_torchscript import Small

def profile(model):
    with torchreel.profiler.profile(with_modules=True, with_stack=True) as prof:
        model(torch.ones(2, 3))
    hierarchies = {event.name: event.module_hierarchy for event in prof.events()}
    assert hierarchies["aten::relu"].endswith("1(ReLU)::forward.::relu."), hierarchies
    (stack,) = {tuple(event.stack) for event in prof.events() if event.name == "aten::relu"}
    assert stack[0].endswith(": relu") and stack[1].endswith(": forward"), stack

def profile_edge(model):
    with torchreel.EdgeProfiler(model, with_stack=True, with_modules=True) as profiler:
        model(torch.ones(2, 3))
    assert "aten::relu" in profiler.result().ops["name"].to_pylist()

def keep_history(model):
    torchreel.memory.record_history(stacks="python")
    model(torch.ones(2, 3))
    torchreel.memory.record_history(enabled=None)

def make(kind):
    model = torch.jit.script(Small().eval())
    if kind == "training kept":
        return torch.jit.freeze(model, preserved_attrs=["training"])
    return torch.jit.optimize_for_inference(model) if kind == "optimized" else torch.jit.freeze(model)

for cycle in range(2):
    for warm in (0, 1, 2, 3, 12):
        model = make(KIND)
        for _ in range(warm):
            model(torch.ones(2, 3))
        READ(model)
        gc.collect()
print("alive")
"""


def _frozen(kind: str, read: str) -> Any:
    """Each kind is read in one way, and in the others by the long tests; a frozen model in all of them."""
    is_long = kind != "frozen" and read != "profile"
    return pytest.param(kind, read, marks=[pytest.mark.long] * is_long)


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        _frozen(kind, read)
        for kind in ("frozen", "optimized", "training kept")
        for read in ("profile", "profile_edge", "keep_history")
    ],
)
def test_frozen_models_live(tmp_path: Path, kind: str, read: str) -> None:
    """torch.jit.freeze frees functions that torch then reads the names of: torch.profiler crashes here."""
    assert "alive" in run_alone(FROZEN.replace("KIND", repr(kind)).replace("READ", read), directory=tmp_path)
