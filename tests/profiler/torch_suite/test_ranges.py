"""What PyTorch's own tests ask of ranges, by whomever they are opened."""

from __future__ import annotations

import collections
import gc
import pickle
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.autograd.profiler
import torch.autograd.profiler_legacy
import torch.profiler
import torch.utils.data.datapipes.iter as datapipes
from torch._C._profiler import _RecordFunctionFast

import torchreel
import torchreel.profiler
import torchreel.profiler.autograd
from tests.profiler.side_by_side import CPU, both, both_older, events, names
from torchreel.profiler import _ExperimentalConfig, record_function


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


@both
def test_data_pipes_open_ranges(module: ModuleType) -> None:
    with module.profile(activities=CPU) as prof:
        list(datapipes.IterableWrapper(range(4)).map(str))
    assert any("IterableWrapper" in name for name in names(prof))
    assert any("Mapper" in name for name in names(prof))


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
            if found["before"]["ts"] + found["before"]["dur"] < event["ts"]
            and event["ts"] + event["dur"] < found["after"]["ts"]
        ]
        assert bool(between) is wanted
        assert wanted or not collections_
    assert torchreel._core.on_garbage not in gc.callbacks


class Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shift: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x - y - shift

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return None, grads[0], -grads[0].sum(0)


@both
def test_arguments_of_a_function_of_ones_own(module: ModuleType) -> None:
    with module.profile(activities=CPU, record_shapes=True) as prof:
        Shifted.apply(7, torch.ones(4, 2, requires_grad=True), torch.ones(2))
    (event,) = [event for event in prof.events() if event.name == "Shifted"]
    assert event.input_shapes == [[], [4, 2], [2]] and event.concrete_inputs == [7, None, None]


@both
def test_fast_ranges_may_be_reused_nested_and_left_by_an_error(module: ModuleType) -> None:
    x = torch.ones(3, 2)

    def fail() -> None:
        with failing:
            x.mul(x)
            raise ZeroDivisionError
            x.relu()

    failing = _RecordFunctionFast("failing", input_values=["text"], keyword_values={"key": "value"})
    reused = _RecordFunctionFast("reused", (x, x))
    with module.profile(activities=CPU, record_shapes=True) as prof:
        for _ in range(3):
            with reused, _RecordFunctionFast("within"):
                x.add(x)
            with pytest.raises(ZeroDivisionError):
                fail()
    found = {event.name: event for event in prof.events()}
    counts = collections.Counter(names(prof))
    assert {name: counts[name] for name in ("reused", "within", "failing", "aten::mul", "aten::relu")} == {
        "reused": 3,
        "within": 3,
        "failing": 3,
        "aten::mul": 3,
        "aten::relu": 0,
    }
    assert found["reused"].input_shapes == [[3, 2], [3, 2]] and found["reused"].kwinputs == {}
    assert found["failing"].input_shapes == [[]] and found["failing"].kwinputs == {"key": "value"}
    assert found["within"].cpu_parent.name == "reused"


@both
def test_texts_with_quotes_among_the_arguments(module: ModuleType, tmp_path: Path) -> None:
    given = {"quoted": 'say "hi"', "plain": "lambda x: x + 1"}
    with module.profile(activities=CPU, record_shapes=True) as prof, _RecordFunctionFast("with texts", [], given):
        torch.ones(1)
    (args,) = [event["args"] for event in events(prof, tmp_path) if event["name"] == "with texts"]
    kept = given if module is torchreel.profiler else {**given, "quoted": "None"}  # torch gives such texts up
    assert {name: args[name] for name in given} == kept


@both
def test_fast_ranges_without_shapes(module: ModuleType) -> None:
    x = torch.ones(3)
    with module.profile(activities=CPU) as prof:
        for _ in range(2):
            if torch.autograd.profiler._is_profiler_enabled:
                with _RecordFunctionFast("guarded", [x, x]):
                    x.add(x)
    assert [event.input_shapes for event in prof.events() if event.name == "guarded"] == [[], []]


@both_older
def test_ranges_with_arguments(older: ModuleType) -> None:
    x = torch.ones(2, 3, requires_grad=True)
    with older.profile(with_stack=True, use_kineto=True, record_shapes=True) as prof:
        with record_function("with a text", "7, 8"):
            torch.autograd._record_function_with_args_exit(
                torch.autograd._record_function_with_args_enter("with values", True, [x], 0.5, "text", x)
            )
        with record_function("without"):
            torch.autograd._record_function_with_args_exit(
                torch.autograd._record_function_with_args_enter("without values")
            )
    shapes = {event.name: event.input_shapes for event in prof.function_events if event.name.startswith("with")}
    assert shapes == {
        "with a text": [[]],
        "with values": [[], [], [], [], [2, 3]],
        "without": [],
        "without values": [],
    }


@both_older
def test_data_pipes_that_branch_and_join_open_ranges(older: ModuleType) -> None:
    with older.profile(with_stack=True, use_kineto=True, record_shapes=True) as prof:
        first, second = datapipes.IterableWrapper(range(3)).fork(num_instances=2)
        assert list(datapipes.IterableWrapper("abc").mux(first)) == ["a", 0, "b", 1, "c", 2]
        assert list(second) == [0, 1, 2]
    found = " ".join(event.name for event in prof.function_events)
    assert all(kind in found for kind in ("IterableWrapper", "Multiplexer", "_ChildDataPipe"))


class Renamed(torch.optim.SGD):
    pass


@both_older
def test_loaders_and_optimizers_open_ranges(older: ModuleType) -> None:
    model = torch.nn.Linear(3, 1)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.ones(6, 3), batch_size=2)
    torch.optim.SGD(model.parameters(), lr=0.1)  # another one adds no second range to a step
    for optimizer in (plain, pickle.loads(pickle.dumps(plain)), Renamed(model.parameters(), lr=0.1)):
        with older.profile(use_kineto=True) as prof:
            for batch in loader:
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
        kind = type(optimizer).__name__
        assert collections.Counter(event.name for event in prof.function_events if "#" in event.name) == {
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 4,  # the last finds nothing
            f"Optimizer.zero_grad#{kind}.zero_grad": 3,
            f"Optimizer.step#{kind}.step": 3,
        }


@both
def test_only_ranges_of_the_program_are_its_annotations(module: ModuleType) -> None:
    with module.profile(activities=module.supported_activities()) as prof, record_function("mine"):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    assert [row.key for row in prof.key_averages() if row.is_user_annotation] == ["mine"]
    assert len(prof.key_averages()) > 1
