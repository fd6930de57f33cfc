"""What PyTorch's own tests ask of who is recorded, when, and what is refused."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.autograd.profiler
import torch.autograd.profiler_legacy
import torch.profiler
from torch._C._profiler import ActiveProfilerType

import torchreel
import torchreel.profiler
import torchreel.profiler.autograd
from tests.profiler.side_by_side import CPU, both, both_older, events, names
from torchreel.profiler import ProfilerActivity, _ExperimentalConfig, schedule


@both
def test_a_program_can_ask_whether_it_is_profiled(module: ModuleType) -> None:
    kind = torch._C._autograd._profiler_type
    assert not torch.autograd._profiler_enabled()
    with module.profile(activities=CPU):
        assert torch.autograd._profiler_enabled() and torch.autograd.profiler._is_profiler_enabled
        assert kind() == ActiveProfilerType.KINETO
    assert not torch.autograd._profiler_enabled() and not torch.autograd.profiler._is_profiler_enabled
    assert kind() == ActiveProfilerType.NONE


def test_the_profiler_that_is_shown_does_not_stay() -> None:
    def fail() -> None:
        with torchreel.profiler.profile(activities=CPU):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not torch.autograd._profiler_enabled()
    prof = torchreel.profiler.profile(activities=CPU)
    prof.start()
    thread = threading.Thread(target=prof.stop)
    thread.start()
    thread.join()
    assert not torch.autograd._profiler_enabled()
    for module in (torchreel.profiler, torch.profiler, torchreel.profiler):
        with module.profile(activities=CPU) as again:
            assert torch.autograd._profiler_enabled()
            torch.ones(1)
        assert "aten::ones" in names(again)


def test_a_forked_child_is_not_profiled() -> None:
    with torchreel.profiler.profile(activities=CPU):
        pid = os.fork()
        if pid == 0:
            asked = torch.autograd._profiler_enabled() or torch.autograd.profiler._is_profiler_enabled
            os._exit(int(asked))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert torch.autograd._profiler_enabled() and torch.autograd.profiler._is_profiler_enabled


@both
def test_unknown_types_of_activities(module: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="NO_SUCH_TYPE"):
        module.profile(activities=[{ProfilerActivity.CPU: ["NO_SUCH_TYPE"]}]).start()
    with pytest.raises(ValueError, match="more than once"):
        module.profile(activities=[ProfilerActivity.CPU, {ProfilerActivity.CPU: ["CPU_OP"]}])


@pytest.mark.parametrize(
    "option",
    [
        {"profiler_metrics": ["kernel__time"]},
        {"enable_cuda_sync_events": True},
        {"disable_external_correlation": True},
        {"custom_profiler_config": "{}"},
        {"adjust_timestamps": True},
    ],
    ids=lambda option: next(iter(option)),
)
def test_options_about_devices_are_said_to_do_nothing(option: dict[str, Any]) -> None:
    torch.profiler.profiler._WARNINGS_SHOWN.clear()
    with pytest.warns(UserWarning, match=f"{next(iter(option))}=.* has no effect"):
        torchreel.profiler.profile(activities=CPU, experimental_config=_ExperimentalConfig(**option))


def frames_of_ours(entries: Iterable[str]) -> list[str]:
    package = str(Path(torchreel.__file__).parent)
    return [entry for entry in entries if package in entry]


def test_our_own_frames_are_not_shown(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    with torchreel.profiler.profile(
        activities=CPU, with_stack=True, profile_memory=True, schedule=schedule(wait=0, warmup=1, active=2, repeat=1)
    ) as prof:
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            prof.step()
    assert frames_of_ours(names(prof)) == []
    assert frames_of_ours(entry for event in prof.events() for entry in event.stack) == []
    assert frames_of_ours(json.dumps(event) for event in events(prof, tmp_path)) == []
    assert not [name for name in names(prof) if name.startswith("torch/profiler/profiler.py")]
    assert "ProfilerStep*" in names(prof)


def test_a_profile_function_of_the_program_sees_nothing_of_ours() -> None:
    seen: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        seen.append(frame.f_code.co_filename)

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    with torchreel.profiler.profile(activities=CPU, with_stack=True) as prof:
        sys.setprofile(watch)
        model(torch.ones(2, 4))
        sys.setprofile(None)
    assert seen and frames_of_ours(seen) == []
    assert "nn.Module: Sequential_0" in names(prof)


@both_older
def test_the_older_door_says_that_it_is_profiled(older: ModuleType) -> None:
    kind = torch._C._autograd._profiler_type
    with older.profile():
        assert torch.autograd.profiler._is_profiler_enabled and kind() == ActiveProfilerType.KINETO
    assert not torch.autograd.profiler._is_profiler_enabled and kind() == ActiveProfilerType.NONE
    with torch.autograd.profiler_legacy.profile():
        assert kind() == ActiveProfilerType.LEGACY


@both
def test_a_forked_child_may_be_profiled_itself(module: ModuleType, tmp_path: Path) -> None:
    with module.profile(activities=CPU):
        torch.ones(1)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with module.profile(activities=CPU) as prof:
                torch.ones(1)
            ops = events(prof, tmp_path, "cpu_op")
            code = int({(event["pid"], event["tid"]) for event in ops} != {(os.getpid(), os.getpid())})
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@both
def test_a_type_of_another_activity(module: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="GPU_MEMCPY"):
        module.profile(activities=[{ProfilerActivity.CPU: ["GPU_MEMCPY"]}]).start()


@both
def test_traces_without_events(module: ModuleType, tmp_path: Path) -> None:
    arguments = []
    for trace_only in (False, True):
        config = _ExperimentalConfig(trace_only=trace_only)
        with module.profile(activities=CPU, record_shapes=True, experimental_config=config) as prof:
            torch.mm(torch.ones(2, 2), torch.ones(2, 2))
        arguments.append([(event["name"], set(event["args"])) for event in events(prof, tmp_path, "cpu_op")])
    assert arguments[0] == arguments[1]
    with pytest.raises(RuntimeError, match="trace_only=True"):
        prof.events()


@both
def test_traces_without_events_have_no_stacks(module: ModuleType) -> None:
    config = _ExperimentalConfig(trace_only=True)
    with (
        pytest.warns(UserWarning, match="trace_only=True is incompatible with with_stack=True"),
        module.profile(activities=CPU, with_stack=True, experimental_config=config) as prof,
    ):
        torch.ones(1)
    assert "aten::ones" in names(prof)


def test_every_thread_is_recorded_whenever_it_began() -> None:
    """torch.profiler sees Python functions of threads that were there before it, and none of those that came later."""
    meeting = threading.Barrier(3)

    def called() -> None:
        torch.ones(1)

    def work() -> None:
        meeting.wait()
        called()
        meeting.wait()

    before, after = (threading.Thread(target=work) for _ in range(2))
    before.start()
    config = _ExperimentalConfig(profile_all_threads=False)
    with torchreel.profiler.profile(activities=CPU, with_stack=True, experimental_config=config) as prof:
        after.start()
        work()
        for thread in (before, after):
            thread.join()
    found = [event for event in prof.events() if event.name.endswith(": called")]
    assert len(found) == len({event.thread for event in found}) == 3
    assert {event.thread for event in prof.events() if event.name == "aten::ones"} == {event.thread for event in found}
    assert len([name for name in names(prof) if name.endswith(": work")]) == 2  # one was open before


@both
def test_frames_that_are_not_of_the_program_have_no_ops(module: ModuleType) -> None:
    x = torch.ones(4)
    with module.profile(activities=CPU, with_stack=True) as prof:
        x.mul_(x)
    assert [name for name in names(prof) if name.startswith("aten")] == ["aten::mul_"]
