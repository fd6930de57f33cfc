"""What PyTorch's own tests ask of the older front door and of the low-level class."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch._dynamo
import torch.autograd.profiler
import torch.autograd.profiler_legacy
import torch.profiler

import torchreel
import torchreel.profiler
import torchreel.profiler.autograd
from tests.profiler.side_by_side import CPU, both, both_older, events, names, trace
from torchreel.errors import AlreadyRecordingError, OptionError, RecorderError
from torchreel.profiler import ProfilerActivity


@both_older
def test_the_older_front_door(older: ModuleType, tmp_path: Path) -> None:
    options = {"record_shapes": True, "profile_memory": True, "use_cpu": True, "use_kineto": True}
    with older.profile(**options) as prof:
        assert str(prof) == "<unfinished torch.autograd.profile>"
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    assert isinstance(prof, torch.autograd.profiler.profile)
    assert [event.input_shapes for event in prof.function_events if event.name == "aten::mm"] == [[[2, 2], [2, 2]]]
    averages = {average.key: average for average in prof.key_averages(group_by_input_shape=True)}
    assert averages["aten::mm"].count == 1 and averages["aten::mm"].cpu_memory_usage == 16
    assert "aten::mm" in prof.table() and "aten::mm" in str(prof)
    assert prof.total_average().count == len(prof.function_events)
    assert prof.self_cpu_time_total > 0 and prof._stats.number_of_events == len(prof.function_events)
    assert "aten::mm" in [event["name"] for event in events(prof, tmp_path, "cpu_op")]
    with pytest.raises(RuntimeError, match="not reentrant"):
        prof.__enter__()
    with older.profile(enabled=False):
        torch.ones(1)
    with pytest.raises(ValueError, match="timeout_s must be non-negative"):
        prof._parse_kineto_results(prof.kineto_results, timeout_s=-1)


def test_the_older_front_door_is_ours() -> None:
    with torchreel.profiler.autograd.profile(use_cuda=False, with_flops=True, with_stack=True) as prof:
        torch.ones(1)
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
        with pytest.raises(AlreadyRecordingError):
            torchreel.profiler.profile(activities=CPU).start()
    assert "aten::ones" in prof.reel.ops["name"].to_pylist()
    assert [event.flops for event in prof.function_events if event.name == "aten::mm"] == [16]
    assert torchreel.profiler.autograd.record_function is torch.autograd.profiler.record_function
    with pytest.raises(RecorderError, match="enabled=False"):
        torchreel.profiler.autograd.profile(enabled=False).key_averages()
    with pytest.raises(OptionError, match="leaves nothing to record"), pytest.warns(UserWarning, match="CUDA"):
        torchreel.profiler.profile(activities=[ProfilerActivity.CUDA]).start()
    with pytest.raises(AttributeError, match=r"torchreel\.profiler\.autograd"):
        torchreel.profiler.autograd.nothing_of_this_name  # noqa: B018


@both
def test_the_low_level_class(module: ModuleType, tmp_path: Path) -> None:
    prof = module._KinetoProfile(activities=CPU, record_shapes=True)
    prof.preset_metadata_json("before", "[1]")
    prof.prepare_trace()
    torch.ones(1)
    prof.start_trace()
    prof.add_metadata("key", "value")
    prof.add_metadata_json("list", "[1, 2]")
    torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    prof.toggle_collection_dynamic(False, CPU)
    torch.ones(5).sin()
    prof.stop_trace()
    assert names(prof).count("aten::mm") == 1 and "aten::sin" not in names(prof)
    written = trace(prof, tmp_path)
    assert (written["before"], written["key"], written["list"]) == ([1], "value", [1, 2])
    assert isinstance(prof, torch.profiler._KinetoProfile)


def test_the_low_level_class_is_ours() -> None:
    prof = torchreel.profiler._KinetoProfile(activities=CPU)
    with pytest.raises(RecorderError, match="prepare_trace"):
        prof.start_trace()
    with pytest.raises(RecorderError, match="start_trace"):
        prof.stop_trace()
    prof.start()
    with pytest.raises(RecorderError, match="already been started"):
        prof.start()
    with pytest.raises(AlreadyRecordingError):
        torchreel.profiler.profile(activities=CPU).start()
    torch.ones(1)
    prof.stop()
    with pytest.raises(RecorderError, match="not running"):
        prof.stop()
    assert "aten::ones" in prof.reel.ops["name"].to_pylist()
    assert isinstance(torchreel.profiler.profile(activities=CPU), torchreel.profiler._KinetoProfile)
