"""The drop-in and torch.profiler, side by side on the same programs."""

from __future__ import annotations

import collections
import gc
import inspect
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.profiler

import torchreel.profiler
from tests.profiler.programs import PROGRAMS, train_mlp
from torchreel.profiler import ProfilerAction, ProfilerActivity

BOTH = (torch.profiler, torchreel.profiler)
EVERYTHING = {"record_shapes": True, "profile_memory": True, "with_flops": True}

programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """torch.profiler does not see what an op does on threads of its own; ours does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def profiled(module: ModuleType, program: Callable[[], None], **options: Any) -> Any:
    program()  # what torch does only once is done
    gc.collect()  # what was left by others is not to be freed in the middle, in one recording and not in the other
    gc.disable()
    try:
        with module.profile(activities=[ProfilerActivity.CPU], **options) as prof:
            program()
    finally:
        gc.enable()
    return prof


def calls(events: Any) -> list[Any]:
    """Without Python functions, of which ours shows fewer: not its own, and none that are written in C."""
    return [event for event in events if not event.is_python_function]


def test_the_same_names_can_be_imported() -> None:
    assert set(torchreel.profiler.__all__) == set(torch.profiler.__all__)
    assert torchreel.profiler._ExperimentalConfig is torch.profiler._ExperimentalConfig
    with pytest.raises(AttributeError, match=r"torchreel\.profiler"):
        torchreel.profiler.nothing_of_this_name  # noqa: B018


@pytest.mark.parametrize(
    "name", [name for name in vars(torch.profiler.profile) if callable(getattr(torch.profiler.profile, name))]
)
def test_methods_have_the_same_signatures(name: str) -> None:
    def parameters(owner: type) -> list[tuple[str, Any, Any]]:
        signature = inspect.signature(getattr(owner, name))
        return [(p.name, p.kind, p.default) for p in signature.parameters.values()]

    assert parameters(torchreel.profiler.profile) == parameters(torch.profiler.profile)


@programs
def test_averages_have_the_same_groups_counts_memory_and_shapes(program: Callable[[], None]) -> None:
    theirs, ours = (profiled(module, program, **EVERYTHING) for module in BOTH)
    for grouping in ({}, {"group_by_input_shape": True}):
        expected, given = theirs.key_averages(**grouping), ours.key_averages(**grouping)
        fields = ("key", "count", "input_shapes", "cpu_memory_usage", "self_cpu_memory_usage", "scope", "is_async",
                  "is_user_annotation", "overload_name", "stack", "node_id", "device_type")  # fmt: skip
        rows = [[[getattr(row, field) for field in fields] for row in table] for table in (given, expected)]
        assert rows[0] == rows[1]


@programs
def test_pain_16_flops_are_those_of_torch_and_more(program: Callable[[], None]) -> None:
    theirs, ours = (profiled(module, program, with_flops=True).key_averages() for module in BOTH)
    counted = {row.key: row.flops for row in theirs if row.flops}
    given = {row.key: row.flops for row in ours if row.flops}
    assert {name: given.get(name) for name in counted} == counted


def test_pain_16_flops_of_attention_and_of_the_backward_pass_are_counted() -> None:
    convolution, attention = (
        {row.key: row.flops for row in profiled(torchreel.profiler, program, with_flops=True).key_averages()}
        for program in (PROGRAMS[1], PROGRAMS[4])
    )
    assert convolution["aten::convolution_backward"] == convolution["aten::conv2d"] > 0
    assert convolution["aten::convolution"] == 0, "counted once, where torch.profiler counts it"
    assert attention["aten::_scaled_dot_product_flash_attention_for_cpu"] == 2 * 2 * (2 * 8 * 8 * 4)


@programs
def test_events_are_the_same_in_the_same_order_and_nested_alike(program: Callable[[], None]) -> None:
    config = torch.profiler._ExperimentalConfig(capture_overload_names=True)
    theirs, ours = (profiled(module, program, **EVERYTHING, experimental_config=config) for module in BOTH)
    fields = ("name", "trace_name", "overload_name", "thread", "input_shapes", "scope", "cpu_memory_usage", "is_async",
              "self_cpu_memory_usage", "is_remote", "node_id", "device_type", "is_user_annotation", "is_legacy",
              "stack", "count", "use_device")  # fmt: skip
    extra = ("concrete_inputs", "structured_input_shapes", "input_dtypes", "activity_type", "device_resource_id",
             "flow_type", "flow_start")  # fmt: skip

    def described(event: Any) -> dict[str, Any]:
        wanted = fields if event.name == "[memory]" else fields + extra
        parent = event.cpu_parent.name if event.cpu_parent is not None else None
        children = [child.name for child in event.cpu_children]
        values = {field: getattr(event, field) for field in wanted}
        if values.get("concrete_inputs"):  # of which torch.profiler leaves texts out
            values["concrete_inputs"] = [None if isinstance(v, str) else v for v in values["concrete_inputs"]]
        return {**values, "parent": parent, "children": children}

    expected, given = ([described(event) for event in prof.events()] for prof in (theirs, ours))
    assert given == expected


def test_backward_events_carry_the_number_of_their_forward_events() -> None:
    events = profiled(torchreel.profiler, train_mlp).events()
    ends = collections.defaultdict(list)
    for event in events:
        if event.flow_id:
            ends[event.flow_id].append((event.flow_start, event.sequence_nr))
    assert ends
    for pair in ends.values():
        assert [start for start, _ in pair] == [True, False]
        assert len({number for _, number in pair}) == 1


@programs
def test_averages_are_what_torch_makes_of_our_events(program: Callable[[], None]) -> None:
    prof = profiled(torchreel.profiler, program, **EVERYTHING, with_stack=True)
    groupings = ([False, 0, False], [True, 0, False], [False, 3, False], [True, 2, True])
    fields = ("key", "count", "self_cpu_memory_usage", "cpu_memory_usage", "flops", "input_shapes", "overload_name",
              "stack", "scope", "is_user_annotation", "is_async")  # fmt: skip
    for grouping in groupings:
        expected, given = prof.events().key_averages(*grouping), prof.key_averages(*grouping)
        assert [[getattr(row, field) for field in fields] for row in given] == [
            [getattr(row, field) for field in fields] for row in expected
        ]
        for field in ("cpu_time_total", "self_cpu_time_total"):
            assert [getattr(row, field) for row in given] == pytest.approx([getattr(row, field) for row in expected])
        assert [row.cpu_parent is None for row in given] == [row.cpu_parent is None for row in expected]


@programs
def test_the_sum_of_self_times_is_the_sum_of_top_level_times(program: Callable[[], None]) -> None:
    for options in ({}, {"with_stack": True}):
        prof = profiled(torchreel.profiler, program, **options)
        top_level = sum(event.cpu_time_total for event in prof.events() if event.cpu_parent is None)
        assert prof.events().self_cpu_time_total == pytest.approx(top_level)
        assert prof.key_averages().self_cpu_time_total == pytest.approx(top_level)
        assert prof.key_averages().total_average().self_cpu_time_total == pytest.approx(top_level)
        assert all(event.self_cpu_time_total >= 0 for event in prof.events())


def test_with_stack_the_same_calls_are_shown() -> None:
    theirs, ours = (profiled(module, train_mlp, with_stack=True) for module in BOTH)
    assert [event.name for event in calls(ours.events())] == [event.name for event in calls(theirs.events())]
    modules = [[e.name for e in prof.events() if e.name.startswith("nn.Module")] for prof in (theirs, ours)]
    assert modules[1] == modules[0] == ["nn.Module: Sequential_0", "nn.Module: Linear_0", "nn.Module: ReLU_0",
                                        "nn.Module: Linear_1"] * 2  # fmt: skip


def test_tables_have_the_same_columns() -> None:
    theirs, ours = (profiled(module, train_mlp, **EVERYTHING) for module in BOTH)

    def head(prof: Any) -> list[str]:
        table = prof.key_averages(group_by_input_shape=True).table(sort_by="count", row_limit=3, header="All of it")
        return [line.split() for line in table.splitlines()[1:4]]

    assert head(ours) == head(theirs)
    top_level = {prof.key_averages().table(top_level_events_only=True).count("\n") for prof in (theirs, ours)}
    assert len(top_level) == 1


def test_chrome_traces_have_the_same_calls(tmp_path: Path) -> None:
    names = []
    for module in BOTH:
        prof = profiled(module, train_mlp, record_shapes=True)
        prof.export_chrome_trace(str(tmp_path / "trace.json"))
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        wanted = [event["name"] for event in events if event.get("cat") in ("cpu_op", "user_annotation")]
        names.append(collections.Counter(name for name in wanted if not name.startswith("ProfilerStep#")))
    assert names[0] == names[1]


def scheduled(module: ModuleType, schedule: Callable[[int], Any], steps: int) -> dict[str, Any]:
    """What happens in a program with a schedule: actions, traces and warnings."""
    actions, traces, x = [], [], torch.ones(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with module.profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule,
            on_trace_ready=lambda prof: traces.append((prof.step_num, [e.trace_name for e in prof.events()])),
        ) as prof:
            for _ in range(steps):
                x.neg()
                actions.append((prof.step_num, prof.current_action))
                prof.step()
    said = [str(warning.message) for warning in caught if "clears events" not in str(warning.message)]
    return {"actions": actions, "traces": traces, "said": said}


@pytest.mark.parametrize(
    "arguments",
    [
        {"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1},
        {"wait": 0, "warmup": 1, "active": 1},
        {"wait": 2, "warmup": 1, "active": 3, "skip_first_wait": 1},
    ],
    ids=str,
)
def test_schedules_give_the_same_traces(arguments: dict[str, int]) -> None:
    theirs, ours = (scheduled(module, module.schedule(**arguments), steps=9) for module in BOTH)
    assert ours == theirs
    assert ours["traces"]


NONE, WARMUP, RECORD, SAVE = (ProfilerAction(number) for number in range(4))


@pytest.mark.parametrize(
    "actions",
    [[WARMUP, NONE], [RECORD, NONE, RECORD], [SAVE], [NONE, SAVE, WARMUP], [NONE, RECORD], [WARMUP], [NONE]],
    ids=lambda actions: "-".join(action.name for action in actions),
)
def test_schedules_of_the_users_own_give_the_same_traces_and_warnings(actions: list[Any]) -> None:
    theirs, ours = (scheduled(module, lambda step: actions[min(step, len(actions) - 1)], 4) for module in BOTH)
    assert ours == theirs


def test_pain_19_a_schedule_that_crashes_torch_only_warns() -> None:
    # RECORD, WARMUP, RECORD ends torch.profiler 2.13 in a segmentation fault.
    actions = [RECORD, WARMUP, RECORD]
    happened = scheduled(torchreel.profiler, lambda step: actions[min(step, 2)], 4)
    assert happened["said"] == ["Incorrect schedule: RECORD followed by WARMUP"]
    assert [[name for name in trace if name.startswith("ProfilerStep")] for _, trace in happened["traces"]] == [
        ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    ]


def test_bad_arguments_are_refused_alike() -> None:
    for module in BOTH:
        with pytest.raises(AssertionError):
            module.schedule(wait=-1, warmup=0, active=1)
        with pytest.raises(ValueError, match="more than once"):
            module.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CPU])
        with pytest.raises(ValueError, match="DEVICE_STOPPED"):
            module.profile(schedule=lambda step: ProfilerAction.DEVICE_STOPPED)
        with pytest.warns(UserWarning, match="CUDA is not available, disabling CUDA profiling"):
            profiled(module, train_mlp) if torch.cuda.is_available() else _profile_cuda(module)


def _profile_cuda(module: ModuleType) -> None:
    with module.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
        torch.ones(1)
