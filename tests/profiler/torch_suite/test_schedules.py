"""What PyTorch's own tests ask of schedules and steps."""

from __future__ import annotations

import importlib
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
from torch.autograd.profiler import KinetoStepTracker
from torch.profiler import ProfilerAction

from tests.in_child import in_child
from tests.profiler.side_by_side import CPU, both, events, names
from torchreel.profiler import _ExperimentalConfig, record_function, schedule


@both
@pytest.mark.parametrize(
    ("warmup", "active", "repeat", "acc_events", "expected"),
    [
        (0, 1, 1, True, 1),
        (0, 5, 0, True, 40),
        (0, 5, 4, True, 20),
        (1, 5, 0, True, 33),
        (5, 5, 3, True, 15),
        (30, 1, 0, True, 1),
        (0, 5, 0, False, 0),
        (5, 5, 3, False, 5),
    ],
)
def test_counts_of_a_schedule(
    module: ModuleType, warmup: int, active: int, repeat: int, acc_events: bool, expected: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = schedule(skip_first=0, wait=0, warmup=warmup, active=active, repeat=repeat)
        with module.profile(activities=CPU, schedule=chosen, acc_events=acc_events) as prof:
            for _ in range(40):
                torch.add(1, 2)
                prof.step()
    counts = {average.key: average.count for average in prof.key_averages()}
    assert counts.get("aten::add", 0) == expected


@both
def test_nothing_recorded_is_an_empty_result(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU) as prof:
        prof.toggle_collection_dynamic(False, CPU)
        torch.ones(1)
    assert len(prof.events()) == 0 and len(prof.key_averages()) == 0
    assert not events(prof, tmp_path, "cpu_op")


@both
def test_steps_without_start(module: ModuleType) -> None:
    prof = module.profile(activities=CPU, schedule=schedule(wait=1, warmup=1, active=2, repeat=1))
    for _ in range(6):
        torch.ones(1)
        prof.step()
    assert names(prof).count("aten::ones") == 2


@both
def test_steps_without_a_schedule_have_no_rows(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU) as prof:
        for _ in range(3):
            torch.ones(1)
            prof.step()
    assert not [event for event in events(prof, tmp_path) if event["name"].startswith("ProfilerStep")]


@both
def test_adjusted_steps_lie_within_calls(module: ModuleType, tmp_path: Path) -> None:
    def train_one_step(prof: Any) -> None:
        torch.ones(64, 64)
        prof.step()

    config = _ExperimentalConfig(adjust_profiler_step=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = schedule(wait=0, warmup=0, active=3, repeat=1)
    with module.profile(activities=CPU, with_stack=True, schedule=chosen, experimental_config=config) as prof:
        for _ in range(3):
            train_one_step(prof)
    found = events(prof, tmp_path)
    steps = [event for event in found if event["name"].startswith("ProfilerStep")]
    calls = [event for event in found if "train_one_step" in event["name"]]
    assert len(steps) == len(calls) == 3
    for step in steps:
        for call in calls:
            first, second = sorted((step, call), key=lambda event: event["ts"])
            overlap = second["ts"] < first["ts"] + first["dur"] < second["ts"] + second["dur"]
            assert not overlap or first["ts"] == second["ts"]


@both
def test_a_schedule_whose_first_cycle_does_not_wait(module: ModuleType) -> None:
    chosen = module.schedule(skip_first=1, wait=2, warmup=1, active=2, repeat=2, skip_first_wait=1)
    seen: list[list[str]] = []
    with module.profile(activities=CPU, schedule=chosen, on_trace_ready=lambda prof: seen.append(names(prof))) as prof:
        for step in range(12):
            with record_function(f"round {step}"):
                torch.ones(1)
            prof.step()
    rounds = [[name for name in cycle if name.startswith("round")] for cycle in seen]
    assert rounds == [["round 2", "round 3"], ["round 7", "round 8"]]


@both
def test_an_action_of_devices_is_refused_and_the_profile_can_be_stopped(module: ModuleType) -> None:
    stopped = ProfilerAction.DEVICE_STOPPED
    with pytest.raises(ValueError, match="DEVICE_STOPPED is set internally"):
        module.profile(activities=CPU, schedule=lambda step: stopped)
    prof = module.profile(activities=CPU, schedule=lambda step: stopped if step else ProfilerAction.WARMUP)
    prof.start()
    with pytest.raises(ValueError, match="DEVICE_STOPPED is set internally"):
        prof.step()
    assert (prof.step_num, prof.current_action, prof.step_rec_fn) == (0, ProfilerAction.WARMUP, None)
    prof.stop()


@both
def test_steps_are_counted_for_a_daemon(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_USE_DAEMON", "1")
    first, tables = KinetoStepTracker.current_step(), []
    with module.profile(
        activities=module.supported_activities(),
        schedule=schedule(wait=1, warmup=1, active=2),
        on_trace_ready=lambda prof: tables.append(prof.key_averages().table(sort_by="self_cpu_time_total")),
    ) as prof:
        for _ in range(8):
            torch.ones(1)
            prof.step()
    assert len(tables) == 2 and all("aten::ones" in table for table in tables)
    assert KinetoStepTracker.current_step() == first + 8


@both
def test_the_count_of_steps_is_that_of_the_fastest(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_USE_DAEMON", "1")
    first = KinetoStepTracker.current_step()
    try:
        for _ in range(3):
            KinetoStepTracker.increment_step("of the program")
        with module.profile(activities=CPU, schedule=schedule(wait=1, warmup=1, active=2)) as prof:
            for _ in range(3):
                KinetoStepTracker.increment_step("of the program")
                prof.step()
        assert KinetoStepTracker.current_step() == first + 6
    finally:
        KinetoStepTracker.erase_step_count("of the program")


def run_as_under_a_daemon(name: str) -> int:
    """In a process of its own: what the environment says is read once."""
    module = importlib.import_module(name)
    first = KinetoStepTracker.current_step()
    with module.profile(activities=CPU, schedule=schedule(wait=1, warmup=1, active=1)) as prof:
        for _ in range(4):
            torch.ones(1)
            prof.step()
    return int(KinetoStepTracker.current_step() - first)


@pytest.mark.parametrize("name", [pytest.param("torch.profiler", marks=pytest.mark.long), "torchreel.profiler"])
def test_a_process_under_a_daemon(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_USE_DAEMON", "1")
    assert in_child(run_as_under_a_daemon, name) == 4
