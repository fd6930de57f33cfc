"""The states of an edge profiler: what it may be asked, when, and what it says otherwise."""

from __future__ import annotations

import gc
import inspect
import json
import threading
import warnings
from pathlib import Path

import pytest
import torch

import torchreel
from tests.edge.nets import Net, batch, calls, on_thread, outermost
from torchreel import EdgeProfiler, current_edge_profiler
from torchreel.errors import AlreadyRecordingError, EdgeError, OptionError

NET_OPS = ["aten::linear", "aten::relu", "aten::linear"]


def test_the_result_is_a_reel_of_the_calls_and_what_is_below_them() -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        net(batch())
    reel = profiler.result()
    assert isinstance(reel, torchreel.Reel)
    assert calls(reel) == ["nn.Module: Net", "nn.Module: Net"]
    assert outermost(reel) == 2 * NET_OPS


def test_its_arguments_are_those_of_the_contract() -> None:
    """In this order and with these defaults, so that what was written for the one of C++ reads the same."""
    given = inspect.signature(EdgeProfiler).parameters
    assert {name: given[name].default for name in list(given)[1:9]} == {
        "trace_path": "",
        "report_input_shapes": False,
        "profile_memory": False,
        "with_stack": False,
        "with_flops": False,
        "with_modules": False,
        "events": (),
        "adjust_timestamps": False,
    }
    assert next(iter(given)) == "module"


def test_sizes_of_the_inputs_of_each_op() -> None:
    net = Net()
    with EdgeProfiler(net, report_input_shapes=True) as profiler:
        net(batch())
    query = "select o.name, i.dims from ops o join inputs i on o.inputs = i.id where o.kind = 'op' order by o.start_ns"
    assert [(row["name"], json.loads(row["dims"])) for row in profiler.result().sql(query).to_pylist()] == [
        ("aten::linear", [[2, 4], [8, 4], [8]]),
        ("aten::relu", [[2, 8]]),
        ("aten::linear", [[2, 8], [2, 8], [2]]),
    ]


def test_a_profile_that_is_discarded_leaves_nothing(tmp_path: Path) -> None:
    net = Net()
    with EdgeProfiler(net, tmp_path / "trace.json") as profiler:
        net(batch())
        profiler.discard()
        net(batch())
    assert list(tmp_path.iterdir()) == []
    assert current_edge_profiler() is None
    with EdgeProfiler(net) as profiler:
        net(batch())
    assert calls(profiler.result()) == ["nn.Module: Net"]


def test_what_it_says_of_the_model() -> None:
    net = Net()
    profiler = EdgeProfiler(net)
    assert (profiler.name, profiler.format, profiler.remark, profiler.module) == ("Net", "nn.Module", None, net)


def test_disable_gives_the_result_and_ends_the_profile() -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        reel = profiler.disable()
        net(batch())
        assert profiler.result() is reel
        assert current_edge_profiler() is None
    assert outermost(profiler.result()) == NET_OPS


def test_disable_twice() -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        profiler.disable()
        with pytest.raises(EdgeError, match=r"already disabled: its reel is what result\(\) gives"):
            profiler.disable()
    with pytest.raises(EdgeError, match="already disabled"):
        profiler.disable()


def test_result_before_disable() -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        with pytest.raises(EdgeError, match=r"has not been disabled.*call disable\(\) first"):
            profiler.result()
    assert outermost(profiler.result()) == NET_OPS


def test_use_before_it_is_entered() -> None:
    profiler = EdgeProfiler(Net())
    with pytest.raises(EdgeError, match="has not begun: use it as `with EdgeProfiler"):
        profiler.disable()
    with pytest.raises(EdgeError, match=r"has not been disabled"):
        profiler.result()
    with pytest.raises(EdgeError, match="outside of the profile"):
        profiler.record_backend_event(1, 2, 3, "conv", "npu")
    with pytest.raises(EdgeError, match="outside of the profile"):
        profiler.record_backend_memory_event(1, 2, 3, 4, "cpu")
    assert current_edge_profiler() is None


def test_entered_twice() -> None:
    net = Net()
    profiler = EdgeProfiler(net)
    with profiler:
        net(batch())
        with pytest.raises(EdgeError, match="already profiling"), profiler:
            pass
        net(batch())
    assert len(calls(profiler.result())) == 2
    with pytest.raises(EdgeError, match="make a new one"), profiler:
        pass


def test_a_second_one_on_the_thread_is_refused_when_it_is_made_and_the_first_has_everything() -> None:
    net, other = Net(), Net()
    with EdgeProfiler(net, profile_memory=True) as profiler:
        net(batch())
        with pytest.raises(EdgeError, match=r"of Net is already profiling on this thread.*unharmed"):
            EdgeProfiler(other)
        net(batch())
        assert current_edge_profiler() is profiler
    assert outermost(profiler.result()) == 2 * NET_OPS
    with EdgeProfiler(other) as second:
        other(batch())
    assert outermost(second.result()) == NET_OPS


def test_one_made_before_the_first_began_is_refused_when_it_is_entered() -> None:
    net, other = Net(), Net()
    waiting = EdgeProfiler(other)
    with EdgeProfiler(net) as profiler:
        with pytest.raises(EdgeError, match="already profiling on this thread"), waiting:
            pass
        net(batch())
    assert outermost(profiler.result()) == NET_OPS
    with waiting:
        other(batch())
    assert outermost(waiting.result()) == NET_OPS


def test_ended_on_another_thread_the_first_thread_is_free_again() -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        on_thread(profiler.disable)
        assert current_edge_profiler() is None
        second = EdgeProfiler(net)
    with second:
        net(batch())
    assert outermost(profiler.result()) == outermost(second.result()) == NET_OPS


def test_who_is_current() -> None:
    net = Net()
    assert current_edge_profiler() is None
    with EdgeProfiler(net) as profiler:
        assert current_edge_profiler() is profiler
        assert on_thread(current_edge_profiler) is None
        net(batch())
        assert current_edge_profiler() is profiler
    assert current_edge_profiler() is None


def test_who_is_current_within_a_call_on_another_thread() -> None:
    seen: list[EdgeProfiler | None] = []
    net = Net()
    net.first.register_forward_hook(lambda *_: seen.append(current_edge_profiler()))

    def call() -> EdgeProfiler | None:
        net(batch())
        return current_edge_profiler()

    with EdgeProfiler(net) as profiler:
        after = on_thread(call)
    assert seen == [profiler]
    assert after is None


def test_who_is_current_after_an_inner_call_of_the_same_model() -> None:
    seen: list[EdgeProfiler | None] = []

    class Twice(torch.nn.Module):
        def forward(self, deep: bool) -> None:
            if deep:
                self(False)
            seen.append(current_edge_profiler())

    model = Twice()
    with EdgeProfiler(model) as profiler:
        on_thread(lambda: model(True))
    assert seen == [profiler, profiler]


def test_a_profile_without_a_call_warns() -> None:
    warned = pytest.warns(UserWarning, match="The model Net was not called while it was profiled")
    with warned, EdgeProfiler(Net()) as profiler:
        torch.ones(2)
    assert profiler.result().ops.num_rows == 0


def test_a_profile_with_a_call_does_not_warn() -> None:
    net = Net()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with EdgeProfiler(net, profile_memory=True, with_stack=True, with_modules=True, with_flops=True):
            net(batch())


@pytest.mark.parametrize("module", [None, 3, "model.pt", torch.ones(2), lambda x: x, Net])
def test_what_cannot_be_profiled(module: object) -> None:
    with pytest.raises(EdgeError, match=r"cannot be profiled: give an nn.Module"):
        EdgeProfiler(module)


def test_counters_given_as_one_text() -> None:
    with pytest.raises(OptionError, match=r"give a list of counters, such as \['cycles'\]"):
        EdgeProfiler(Net(), events="cycles")


def test_a_recorder_that_runs_is_unharmed(tmp_path: object) -> None:
    net = Net()
    with torchreel.record(f"{tmp_path}/run.reel"):
        torch.ones(2)
        with pytest.raises(AlreadyRecordingError, match=r"stop it first.*unharmed"), EdgeProfiler(net):
            pass
        assert current_edge_profiler() is None
        net(batch())
    names = torchreel.load(f"{tmp_path}/run.reel").ops.column("name").to_pylist()
    assert names[0] == "aten::ones"
    assert names.count("aten::linear") == 2


def test_a_recorder_is_refused_while_a_profiler_runs(tmp_path: object) -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        with pytest.raises(AlreadyRecordingError), torchreel.record(f"{tmp_path}/run.reel"):
            pass
        net(batch())
    assert outermost(profiler.result()) == 2 * NET_OPS
    with torchreel.record(f"{tmp_path}/after.reel"):
        torch.ones(2)
    assert "aten::ones" in torchreel.load(f"{tmp_path}/after.reel").ops.column("name").to_pylist()


def test_it_leaves_the_model_as_it_was() -> None:
    net = Net()
    before = {name: (type(value), repr(value)) for name, value in vars(net).items()}
    with EdgeProfiler(net, with_modules=True, with_stack=True):
        net(batch())
    assert {name: (type(value), repr(value)) for name, value in vars(net).items()} == before
    assert type(net) is Net


def test_the_profiler_and_its_model_can_be_freed() -> None:
    import weakref

    net = Net()
    gone = weakref.ref(net)
    with EdgeProfiler(net, with_modules=True) as profiler:
        net(batch())
    del net, profiler
    gc.collect()
    assert gone() is None


def test_many_one_after_the_other_leave_no_thread() -> None:
    net = Net()
    with EdgeProfiler(net):
        net(batch())
    before = threading.active_count()
    for _ in range(20):
        with EdgeProfiler(net, profile_memory=True, with_modules=True) as profiler:
            net(batch())
        assert outermost(profiler.result()) == NET_OPS
    assert threading.active_count() == before
