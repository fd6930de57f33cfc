"""One profiler for each thread: several at the same time, each with its own model, options and result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchreel
from tests.alone import run_alone
from tests.edge.nets import Calling, Net, batch, calls, on_thread, outermost
from tests.record.rows import rows
from torchreel import EdgeProfiler, current_edge_profiler
from torchreel.errors import TorchreelError


def together(*functions: Callable[[threading.Barrier], torchreel.Reel]) -> list[torchreel.Reel]:
    """Each function on a thread of its own; they meet at the barrier."""
    barrier = threading.Barrier(len(functions))
    found: dict[int, Any] = {}

    def run(index: int) -> None:
        try:
            found[index] = functions[index](barrier)
        except BaseException as error:
            barrier.abort()
            found[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in found.values():
        if isinstance(result, BaseException):
            raise result
    return [found[index] for index in range(len(functions))]


def profiled(model: nn.Module, count: int, **options: Any) -> Callable[[threading.Barrier], torchreel.Reel]:
    def run(barrier: threading.Barrier) -> torchreel.Reel:
        with EdgeProfiler(model, **options) as profiler:
            barrier.wait()
            for _ in range(count):
                assert current_edge_profiler() is profiler
                model(batch())
                torch.ones(2).tan()
            barrier.wait()
        return profiler.result()

    return run


def test_each_gets_exactly_its_own_models_ops() -> None:
    sine, cosine = Calling(torch.sin), Calling(torch.cos)
    first, second = together(profiled(sine, 50), profiled(cosine, 70))
    assert outermost(first) == 50 * ["aten::sin"]
    assert outermost(second) == 70 * ["aten::cos"]
    assert (first.threads.num_rows, second.threads.num_rows) == (1, 1)
    assert first.ops.num_rows == 100
    assert second.ops.num_rows == 140


def test_each_has_its_own_options() -> None:
    first, second, third = together(
        profiled(Net(), 5, report_input_shapes=True),
        profiled(Net(), 5, profile_memory=True, with_stack=True),
        profiled(Net(), 5, with_modules=True, with_flops=True),
    )

    def count(reel: torchreel.Reel, what: str) -> int:
        found: int = rows(reel, f"select count({what}) as n from ops where name = 'aten::linear'")[0]["n"]
        return found

    assert [count(reel, "inputs") for reel in (first, second, third)] == [10, 0, 10]
    assert [count(reel, "stack") for reel in (first, second, third)] == [0, 10, 0]
    assert [count(reel, "flops") for reel in (first, second, third)] == [0, 0, 10]
    assert [count(reel, "distinct module") for reel in (first, second, third)] == [1, 1, 2]
    assert first.ops.column("kind").to_pylist().count("module") == 5
    assert outermost(first) == 5 * ["aten::linear", "aten::relu", "aten::linear"]
    times = rows(first, "select sum(self_ns) as self, sum(dur_ns) filter (where parent is null) as whole from ops")[0]
    assert abs(times["self"] - times["whole"]) <= first.ops.num_rows
    assert [reel.allocs.num_rows > 0 for reel in (first, second, third)] == [False, True, False]


def test_the_same_model_on_two_threads() -> None:
    """Both see all calls, whoever makes them, that were made while both ran."""
    net = Net()
    first, second = together(profiled(net, 10), profiled(net, 10))
    for reel in (first, second):
        assert len(calls(reel)) == 20
        assert reel.ops.column("name").to_pylist().count("aten::linear") == 40


@pytest.mark.parametrize("options", [{}, {"with_modules": True}], ids=["plain", "modules"])
def test_calls_made_before_a_profiler_began_are_not_its_own(options: dict[str, bool]) -> None:
    net = Net()

    def other() -> int:
        with EdgeProfiler(net, **options) as second:
            net(batch())
        return len(calls(second.result()))

    with EdgeProfiler(net, **options) as profiler:
        net(batch())
        net(batch())
        assert on_thread(other) == 1
        net(batch())
    assert len(calls(profiler.result())) == 4


def test_one_begins_and_ends_while_another_runs() -> None:
    long, short = Calling(torch.sin), Calling(torch.cos)

    def within() -> list[str]:
        with EdgeProfiler(short) as inner:
            short(batch())
        return outermost(inner.result())

    with EdgeProfiler(long, with_modules=True) as profiler:
        long(batch())
        for _ in range(3):
            assert on_thread(within) == ["aten::cos"]
        long(batch())
    assert outermost(profiler.result()) == ["aten::sin", "aten::sin"]


def test_the_first_ends_before_the_second() -> None:
    first, second = Calling(torch.sin), Calling(torch.cos)
    begun, go_on = threading.Event(), threading.Event()
    found: list[torchreel.Reel] = []

    def run() -> None:
        with EdgeProfiler(second, profile_memory=True) as profiler:
            second(batch())
            begun.set()
            go_on.wait()
            second(batch())
        found.append(profiler.result())

    thread = threading.Thread(target=run)
    with EdgeProfiler(first) as profiler:
        thread.start()
        begun.wait()
        first(batch())
    assert outermost(profiler.result()) == ["aten::sin"]
    go_on.set()
    thread.join()
    assert outermost(found[0]) == ["aten::cos", "aten::cos"]


def test_a_model_that_calls_the_model_of_another_profiler() -> None:
    inner = Calling(torch.cos)

    def forward(x: Tensor) -> Tensor:
        y: Tensor = inner(x.sin())
        return y.exp()

    outer = Calling(forward)

    def other(barrier: threading.Barrier) -> torchreel.Reel:
        with EdgeProfiler(inner) as profiler:
            barrier.wait()
            barrier.wait()
        return profiler.result()

    first, second = together(profiled(outer, 3), other)
    assert [name for name in first.ops.sort_by("id").column("name").to_pylist() if name.startswith("aten::")] == 3 * [
        "aten::sin",
        "aten::cos",
        "aten::exp",
    ]
    assert outermost(second) == 3 * ["aten::cos"]


OPTIONS = ("report_input_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")


def profiled_at_random(seed: int) -> Callable[[threading.Barrier], torchreel.Reel]:
    """Profile after profile, each of a model of its own with options of its own."""

    def run(barrier: threading.Barrier) -> torchreel.Reel:
        random = Random(seed)
        barrier.wait()
        for _ in range(8):
            count = random.randint(1, 10)
            options = {name: random.random() < 0.4 for name in OPTIONS}
            is_net = random.random() < 0.5
            model = Net() if is_net else Calling(torch.sin)
            with EdgeProfiler(model, **options) as profiler:
                for _ in range(count):
                    model(batch())
                    torch.ones(2).tan()
            reel = profiler.result()
            assert len(calls(reel)) == count
            assert outermost(reel) == count * (
                ["aten::linear", "aten::relu", "aten::linear"] if is_net else ["aten::sin"]
            )
            parts = 2 if is_net and options["with_modules"] else 0
            assert reel.ops.column("kind").to_pylist().count("module") == count * (1 + parts)
            assert (reel.allocs.num_rows > 0) is options["profile_memory"]
            assert min(reel.allocs.column("total").to_pylist(), default=0) >= 0
        return reel

    return run


def test_profilers_come_and_go_on_many_threads() -> None:
    together(*(profiled_at_random(seed) for seed in range(4)))


def test_counters_must_be_the_same() -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())

        def other() -> None:
            with EdgeProfiler(Net(), events=["task-clock"]):
                pass

        with pytest.raises(TorchreelError):
            on_thread(other)
        net(batch())
    assert len(calls(profiler.result())) == 2


def test_a_thread_that_ends_within_its_profile() -> None:
    """A profiler that nobody ended is ended by another thread."""
    net = Net()

    def begin() -> EdgeProfiler:
        profiler = EdgeProfiler(net).__enter__()
        net(batch())
        return profiler

    profiler = on_thread(begin)
    assert current_edge_profiler() is None
    assert outermost(profiler.disable()) == ["aten::linear", "aten::relu", "aten::linear"]


FORKED = """
    import os, sys
    import torch, torchreel
    from tests.edge.nets import Net, batch, calls, outermost

    torch.set_num_threads(1)
    net = Net()
    path = sys.argv[1]
    with torchreel.EdgeProfiler(net, path, profile_memory=True, with_modules={modules}) as profiler:
        net(batch())
        child = os.fork()
        if child == 0:
            assert net(batch()).shape == (2, 2)
            print("child", torchreel.current_edge_profiler() is profiler, flush=True)
            {end}
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        net(batch())
    reel = profiler.result()
    print(len(calls(reel)), reel.ops.column("name").to_pylist().count("aten::linear"), os.path.exists(path))
"""


@pytest.mark.parametrize("modules", [False, True])
@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
def test_a_process_that_forks_while_a_profiler_runs(tmp_path: object, end: str, modules: bool) -> None:
    script = FORKED.format(end=end, modules=modules)
    said = run_alone(script, f"{tmp_path}/trace.json").splitlines()
    assert said[0].startswith("child")
    assert said[-1] == "2 4 True"


PROFILE_IN_THE_CHILD = """
    import os, sys
    import torch, torchreel
    from tests.edge.nets import Net, batch, outermost

    torch.set_num_threads(1)
    net = Net()
    with torchreel.EdgeProfiler(net) as profiler:
        net(batch())
        child = os.fork()
        if child == 0:
            other = Net()  # other
            with torchreel.EdgeProfiler(other) as own:
                other(batch())
            print(outermost(own.result()), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        net(batch())
    print(len(outermost(profiler.result())))
"""


@pytest.mark.parametrize("model", ["Net()", "net"])
def test_the_child_of_a_fork_profiles_for_itself(model: str) -> None:
    script = PROFILE_IN_THE_CHILD.replace("Net()  # other", model)
    assert run_alone(script).splitlines() == ["['aten::linear', 'aten::relu', 'aten::linear']", "6"]


FORKED_WITHIN = """
    import os, sys
    import torch, torchreel
    from tests.edge.nets import Calling, Net, batch, outermost

    torch.set_num_threads(1)

    def forward(x):
        x.exp()
        child = os.fork()
        if child == 0:
            x.tan()
            net = Net()
            with torchreel.EdgeProfiler(net) as own:
                net(batch())
                torch.ones(2).tan()
            print(outermost(own.result()), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        return x.sin()

    model = Calling(forward)
    with torchreel.EdgeProfiler(model) as profiler:
        model(batch())
    print(outermost(profiler.result()))
"""


def test_a_fork_within_a_call() -> None:
    assert run_alone(FORKED_WITHIN).splitlines() == [
        "['aten::linear', 'aten::relu', 'aten::linear']",
        "['aten::exp', 'aten::sin']",
    ]
