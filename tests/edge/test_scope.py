"""Only what the model does is recorded, whichever thread it runs on, and all of that."""

from __future__ import annotations

import copy
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.edge.nets import Calling, Net, batch, calls, on_thread, outermost
from tests.record.rows import rows
from torchreel import EdgeProfiler, current_edge_profiler

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

NET_OPS = ["aten::linear", "aten::relu", "aten::linear"]

with_everything = pytest.mark.parametrize(
    "options",
    [{}, {"with_modules": True}, {"report_input_shapes": True, "profile_memory": True, "with_stack": True}],
    ids=["plain", "modules", "all"],
)


@with_everything
def test_ops_around_the_calls_are_absent(options: dict[str, bool]) -> None:
    net = Net()
    with EdgeProfiler(net, **options) as profiler:
        torch.ones(2).sin()
        x = batch()
        net(x).cos()
        torch.ones(2).sin()
        net(x).cos()
        torch.ones(2).sin()
    reel = profiler.result()
    assert outermost(reel) == 2 * NET_OPS
    names = set(reel.ops.column("name").to_pylist())
    assert names & {"aten::sin", "aten::cos", "aten::ones", "aten::fill_", "aten::empty"} == set()
    assert len(calls(reel)) == 2
    assert rows(reel, "select count(*) as n from ops where parent is null")[0]["n"] == 2


@with_everything
def test_ops_of_other_threads_are_absent(options: dict[str, bool]) -> None:
    begun, done = threading.Event(), threading.Event()

    def others() -> None:
        while not done.is_set():
            torch.ones(2).sin()
            begun.set()

    def forward(x: Tensor) -> Tensor:
        begun.clear()
        begun.wait()  # the other thread has worked within the call
        return x.exp()

    model = Calling(forward)
    thread = threading.Thread(target=others)
    thread.start()
    try:
        with EdgeProfiler(model, **options) as profiler:
            model(batch())
    finally:
        done.set()
        thread.join()
    reel = profiler.result()
    assert outermost(reel) == ["aten::exp"]
    assert "aten::sin" not in reel.ops.column("name").to_pylist()
    assert reel.threads.num_rows == 1


@with_everything
def test_a_call_on_another_thread_is_there(options: dict[str, bool]) -> None:
    net = Net()

    def run() -> int:
        torch.ones(2).sin()
        net(batch()).cos()
        return threading.get_native_id()

    with EdgeProfiler(net, **options) as profiler:
        other = on_thread(run)
        net(batch())
    reel = profiler.result()
    assert set(reel.ops.column("name").to_pylist()) & {"aten::sin", "aten::cos"} == set()
    found = rows(
        reel,
        """select t.os_id, count(*) filter (where o.name = 'aten::linear') as linear, count(distinct o.thread) as n
           from ops o join threads t on o.thread = t.id group by t.os_id""",
    )
    assert {row["os_id"]: row["linear"] for row in found} == {other: 2, threading.get_native_id(): 2}


def test_many_threads_at_once() -> None:
    net = Net()
    ready = threading.Barrier(4)

    def run() -> None:
        ready.wait()
        for _ in range(20):
            net(batch())
            torch.ones(2).sin()

    threads = [threading.Thread(target=run) for _ in range(4)]
    with EdgeProfiler(net, profile_memory=True) as profiler:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    reel = profiler.result()
    assert len(calls(reel)) == 80
    assert sorted(outermost(reel)) == sorted(80 * NET_OPS)
    assert "aten::sin" not in reel.ops.column("name").to_pylist()
    below = "select count(*) as n from ops o join ops p on o.parent = p.id where o.thread != p.thread"
    assert rows(reel, below)[0]["n"] == 0


class Forking(nn.Module):
    """Runs one branch on a thread of torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        other = torch.jit.fork(torch.tanh, x)
        here = self.branch(x)
        return here + torch.jit.wait(other)


@pytest.mark.parametrize("options", [{}, {"with_modules": True, "with_stack": True}], ids=["plain", "places"])
def test_ops_that_torchscript_forks_are_there(options: dict[str, bool]) -> None:
    model = torch.jit.script(Forking().eval())
    with torch.no_grad():
        for _ in range(3):
            model(batch())
        with EdgeProfiler(model, **options) as profiler:
            for _ in range(5):
                model(batch())
                on_thread(lambda: torch.ones(3).sin())
    reel = profiler.result()
    names = reel.ops.column("name").to_pylist()
    assert names.count("aten::tanh") == 5
    assert names.count("aten::linear") == 5
    assert "aten::sin" not in names


def test_forks_of_what_is_not_the_model_are_absent() -> None:
    other = torch.jit.script(Forking().eval())
    net = Net()
    with torch.no_grad(), EdgeProfiler(net) as profiler:
        net(batch())
        for _ in range(5):
            other(batch())
        net(batch())
    assert outermost(profiler.result()) == 2 * NET_OPS
    assert "aten::tanh" not in profiler.result().ops.column("name").to_pylist()


def test_backward_after_the_call_is_absent() -> None:
    net = Net()
    with EdgeProfiler(net, profile_memory=True) as profiler:
        net(batch()).sum().backward()
        net(batch()).sum().backward()
    reel = profiler.result()
    assert outermost(reel) == 2 * NET_OPS
    assert "backward" not in reel.ops.column("kind").to_pylist()


def test_backward_within_the_call_is_there() -> None:
    weight = torch.ones(4, requires_grad=True)
    model = Calling(lambda x: (x * weight).sum().backward())
    with EdgeProfiler(model) as profiler:
        model(batch())
    assert "MulBackward0" in profiler.result().ops.column("name").to_pylist()


def test_modules_within_the_model_are_there_with_their_places() -> None:
    model = nn.Sequential(Net(), nn.Sequential(nn.ReLU(), nn.Linear(2, 3)))
    with EdgeProfiler(model, with_modules=True) as profiler:
        model(batch())
    found = rows(
        profiler.result(),
        """select m.path, m.class, o.name from ops o join modules m on o.module = m.id
           where o.name in ('aten::linear', 'aten::relu') order by o.id""",
    )
    assert [(row["path"], row["class"], row["name"]) for row in found] == [
        ("Sequential.0.first", "Linear", "aten::linear"),
        ("Sequential.0", "Net", "aten::relu"),
        ("Sequential.0.second", "Linear", "aten::linear"),
        ("Sequential.1.0", "ReLU", "aten::relu"),
        ("Sequential.1.1", "Linear", "aten::linear"),
    ]


def test_a_part_of_a_model_by_itself() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Net(), nn.Tanh())
    with EdgeProfiler(model[1], with_modules=True) as profiler:
        model(batch())
        model[2](batch())
    names = profiler.result().ops.column("name").to_pylist()
    assert names.count("aten::linear") == 2
    assert "aten::tanh" not in names
    assert len(calls(profiler.result())) == 1


def test_a_model_that_calls_itself() -> None:
    class Deep(nn.Module):
        def forward(self, x: Tensor, depth: int) -> Tensor:
            return self(x.exp(), depth - 1).sin() if depth else x.cos()

    model = Deep()
    for options in ({}, {"with_modules": True}):
        with EdgeProfiler(model, **options) as profiler:
            model(batch(), 3)
            torch.ones(2).tan()
            model(batch(), 0)
        reel = profiler.result()
        assert len(calls(reel)) == 2
        ops = [name for name in reel.ops.sort_by("id").column("name").to_pylist() if name.startswith("aten::")]
        assert ops == 3 * ["aten::exp"] + ["aten::cos"] + 3 * ["aten::sin"] + ["aten::cos"]


def raising(x: Tensor, fails: bool) -> Tensor:
    x = x.exp()
    if fails:
        x @ torch.ones(7)
    return x.sin()


def test_a_model_that_raises(tmp_path: Path) -> None:
    model = Calling(raising)
    path = tmp_path / "trace.json"
    with pytest.raises(RuntimeError, match="size mismatch"), EdgeProfiler(model, path, with_modules=True) as profiler:
        model(batch(), True)
    names = [event["name"] for event in json.loads(path.read_text())["traceEvents"]]
    assert "aten::exp" in names
    assert outermost(profiler.result())[0] == "aten::exp"
    assert current_edge_profiler() is None


@pytest.mark.parametrize("options", [{}, {"with_modules": True}], ids=["plain", "modules"])
def test_the_call_after_one_that_raised_is_recorded_right(options: dict[str, bool]) -> None:
    model = Calling(raising)
    with EdgeProfiler(model, **options) as profiler:
        with pytest.raises(RuntimeError, match="size mismatch"):
            model(batch(), True)
        torch.ones(2).tan()
        model(batch(), False)
    reel = profiler.result()
    assert "aten::tan" not in reel.ops.column("name").to_pylist()
    assert len(calls(reel)) == 2
    assert outermost(reel)[-2:] == ["aten::exp", "aten::sin"]
    tops = rows(reel, "select start_ns, start_ns + dur_ns as end_ns from ops where parent is null order by id")
    assert tops[0]["end_ns"] <= tops[1]["start_ns"]


def test_an_interrupt_within_the_model() -> None:
    def forward(x: Tensor) -> Tensor:
        x.exp()
        raise KeyboardInterrupt

    model = Calling(forward)
    with pytest.raises(KeyboardInterrupt), EdgeProfiler(model) as profiler:
        model(batch())
    assert outermost(profiler.result()) == ["aten::exp"]
    assert current_edge_profiler() is None
    assert not model._forward_hooks
    net = Net()
    with EdgeProfiler(net, with_modules=True) as second:
        torch.ones(2).tan()
        net(batch())
    names = second.result().ops.column("name").to_pylist()
    assert len(calls(second.result())) == 1
    assert names.count("aten::linear") == 2
    assert "aten::tan" not in names


def test_disabled_within_the_model() -> None:
    def forward(x: Tensor) -> Tensor:
        x = x.exp()
        profiler = current_edge_profiler()
        if profiler is not None:
            profiler.disable()
        return x.sin()

    model = Calling(forward)
    with EdgeProfiler(model) as profiler:
        model(batch())
        assert current_edge_profiler() is None
    assert outermost(profiler.result()) == ["aten::exp"]
    with EdgeProfiler(model) as profiler:
        torch.ones(2).tan()
        model(batch())
    assert outermost(profiler.result()) == ["aten::exp"]


@pytest.mark.parametrize("options", [{}, {"with_modules": True, "profile_memory": True}], ids=["plain", "modules"])
def test_the_profiler_ends_while_the_model_runs_on_another_thread(options: dict[str, bool]) -> None:
    within, ended = threading.Event(), threading.Event()

    def forward(x: Tensor) -> Tensor:
        x = x.exp()
        within.set()
        ended.wait()
        return x.sin()

    model = Calling(forward)

    def run() -> list[str]:
        model(batch())
        assert current_edge_profiler() is None
        # This thread is as good as new.
        with EdgeProfiler(model) as own:
            torch.ones(2).tan()
            model(batch())
        return outermost(own.result())

    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run()))
    with EdgeProfiler(model, **options) as profiler:
        thread.start()
        within.wait()
    ended.set()
    thread.join()
    assert outermost(profiler.result()) == ["aten::exp"]
    assert found == [["aten::exp", "aten::sin"]]
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_the_profiler_begins_while_the_model_runs_on_another_thread() -> None:
    within, begun = threading.Event(), threading.Event()

    def forward(x: Tensor, waits: bool) -> Tensor:
        if waits:
            within.set()
            begun.wait()
        return x.exp()

    model = Calling(forward)
    thread = threading.Thread(target=lambda: model(batch(), True))
    thread.start()
    within.wait()
    with EdgeProfiler(model) as profiler:
        begun.set()
        thread.join()
        model(batch(), False)
    assert outermost(profiler.result()) == ["aten::exp"]
    assert len(calls(profiler.result())) == 1


def test_a_copy_of_the_model_is_another_model() -> None:
    net = Net()
    with EdgeProfiler(net, with_modules=True) as profiler:
        other = copy.deepcopy(net)
        other(batch())
        net(batch())
    assert len(calls(profiler.result())) == 1
    assert profiler.result().ops.column("name").to_pylist().count("aten::linear") == 2
    other(batch())


def test_hooks_of_the_user_run_as_ever() -> None:
    net = Net()
    seen: list[str] = []
    net.register_forward_pre_hook(lambda *_: seen.append("before"))
    net.register_forward_hook(lambda *_: seen.append("after"))
    with EdgeProfiler(net):
        net(batch())
    assert seen == ["before", "after"]


def test_every_row_lies_within_its_parent() -> None:
    net = Net()
    with EdgeProfiler(net, with_modules=True, with_stack=True) as profiler:
        for _ in range(10):
            net(batch())
    outside = """select count(*) as n from ops o join ops p on o.parent = p.id
                 where o.start_ns < p.start_ns or o.start_ns + o.dur_ns > p.start_ns + p.dur_ns"""
    assert rows(profiler.result(), outside)[0]["n"] == 0
    open_rows = rows(profiler.result(), "select count(*) as n from ops where open")
    assert open_rows[0]["n"] == 0


def test_the_answer_is_the_same() -> None:
    net = Net()
    expected = net(batch())
    with EdgeProfiler(net, "", True, True, True, True, True):
        assert torch.equal(net(batch()), expected)


@pytest.mark.parametrize("options", [{}, {"with_modules": True, "with_stack": True}], ids=["plain", "places"])
@pytest.mark.parametrize("way", ["torch.compile", "inside", ".compile()"])
def test_a_compiled_model(way: str, options: dict[str, bool]) -> None:
    net: Any = Net().eval()
    if way == ".compile()":
        called = model = net
        net.compile(backend="eager")
    else:
        called = torch.compile(net, backend="eager")
        model = net if way == "inside" else called
    with torch.no_grad():
        expected = called(batch())
        with EdgeProfiler(model, **options) as profiler:
            for _ in range(3):
                assert torch.equal(called(batch()), expected)
                torch.ones(2).tan()
    names = profiler.result().ops.column("name").to_pylist()
    assert len(calls(profiler.result())) == 3
    assert names.count("aten::linear") == 6
    assert "aten::tan" not in names
    assert torch.equal(called(batch()), expected)


def test_disabled_within_an_op() -> None:
    """What comes after it on the thread is profiled as ever."""
    library = torch.library.Library("edge_test_ending", "FRAGMENT")
    library.define("ending(Tensor x) -> Tensor")

    def ending(x: Tensor) -> Tensor:
        profiler = current_edge_profiler()
        assert profiler is not None
        profiler.disable()
        return x.clone()

    library.impl("ending", ending, "CPU")
    model = Calling(lambda x: torch.ops.edge_test_ending.ending(x.exp()).sin())
    net = Net()

    def run() -> tuple[list[str], list[str]]:
        with torch.no_grad(), EdgeProfiler(model) as profiler:
            model(batch())
        with EdgeProfiler(net) as second:
            net(batch())
        return outermost(profiler.result()), outermost(second.result())

    first, second = on_thread(run)
    assert first[0] == "aten::exp"
    assert second == NET_OPS


def test_an_op_that_raises_within_the_model_hides_nothing_after_it() -> None:
    def forward(x: Tensor) -> Tensor:
        with pytest.raises(RuntimeError):
            x @ torch.ones(7)
        return x.sin()

    model = Calling(forward)
    with EdgeProfiler(model) as profiler:
        model(batch())
    assert outermost(profiler.result())[-1] == "aten::sin"


def test_nested_ops_where_they_are_asked_for() -> None:
    """By themselves they are left out, and what they took and allocated is that of the op around them."""
    net = Net()
    with torch.no_grad():
        with EdgeProfiler(net, with_flops=True, profile_memory=True) as plain:
            net(batch())
        with EdgeProfiler(net, with_flops=True, profile_memory=True, nested=True) as nested:
            net(batch())
    assert outermost(plain.result()) == outermost(nested.result()) == NET_OPS
    assert plain.result().ops.num_rows == 4
    assert "aten::addmm" in nested.result().ops.column("name").to_pylist()
    total = "select sum(flops) as flops, sum(self_alloc_bytes) as bytes from ops"
    assert rows(plain.result(), total) == rows(nested.result(), total)
    assert rows(plain.result(), total)[0]["flops"] == 2 * 2 * 4 * 8 + 2 * 2 * 8 * 2
