"""What users of torch.profiler suffer from, by its number in the list of pains, and users of the drop-in do not."""

from __future__ import annotations

import gc
import gzip
import json
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import torchreel
from tests.alone import run_forked
from tests.profiler.programs import train_mlp
from torchreel import _core
from torchreel.errors import AlreadyRecordingError, OptionError
from torchreel.profiler import profile, record_function, schedule


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the reels of profiles go; when a test ends none may be left."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    yield directory
    gc.collect()
    assert not list(directory.glob("torchreel-profile-*")), "this test left a reel behind"


def names(prof: profile) -> list[str]:
    return [event.name for event in prof.events()]


def test_pain_5_a_profile_dies_without_gc_and_leaves_no_memory(own_temporary_directory: Path) -> None:
    x = torch.ones(2)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def profile_one_step() -> weakref.ref[profile]:
        with profile(record_shapes=True, on_trace_ready=lambda prof: prof.key_averages().table()) as prof:
            for _ in range(50):
                x.neg()
        return weakref.ref(prof)

    profile_one_step()
    gc.collect()
    gc.disable()
    try:
        before = resident()
        assert all(profile_one_step()() is None for _ in range(100))
        assert not list(own_temporary_directory.iterdir())
        assert resident() - before < 64e6
    finally:
        gc.enable()


def test_pain_7_stacks_are_there_with_with_stack_alone(tmp_path: Path) -> None:
    with profile(with_stack=True) as prof:
        train_mlp()
    for metric in ("self_cpu_time_total", "self_cuda_time_total"):
        prof.export_stacks(str(tmp_path / metric), metric)
    lines = (tmp_path / "self_cpu_time_total").read_text().splitlines()
    assert any("train_mlp;" in line and "Linear.forward" in line for line in lines)
    assert all(line.rpartition(" ")[2].isdigit() for line in lines)
    assert (tmp_path / "self_cuda_time_total").read_text() == ""
    table = prof.key_averages(group_by_stack_n=5).table(row_limit=-1)
    assert "linear.py(" in table


def test_pain_8_no_slice_of_a_trace_with_stacks_overlaps_with_another(tmp_path: Path) -> None:
    with profile(with_stack=True, schedule=schedule(wait=0, warmup=1, active=2, repeat=1)) as prof:
        for _ in range(3):
            train_mlp()
            prof.step()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    tracks: dict[object, list[tuple[int, int]]] = {}
    for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]:
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            track = tracks.setdefault((event["pid"], event["tid"]), [])
            track.append((start, -start - round(event["dur"] * 1000)))
    for track in tracks.values():
        open_until: list[int] = []
        for start, end in sorted(track):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or -end <= open_until[-1]
            open_until.append(-end)


def test_pain_9_any_name_is_valid_json(tmp_path: Path) -> None:
    name = 'say "hi" \\ \n'
    with profile() as prof, record_function(name):
        torch.ones(1)
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    assert name in {event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}


def test_pain_10_other_threads_are_recorded_with_their_memory() -> None:
    def work() -> None:
        with record_function("on another thread"):
            kept.append(torch.ones(1000))

    kept: list[torch.Tensor] = []
    with profile(profile_memory=True) as prof:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        torch.ones(1)
    there, here = (event for event in prof.events() if event.name == "aten::ones")
    assert there.thread != here.thread
    assert there.cpu_parent.name == "on another thread"
    assert there.cpu_memory_usage == 4000
    assert here.cpu_memory_usage == 4


def test_pain_14_frees_of_older_blocks_are_counted() -> None:
    older = [torch.ones(1000)]
    with profile(profile_memory=True) as prof, record_function("free"):
        older.clear()
    assert prof.events()[0].cpu_memory_usage == -4000


def test_pain_17_every_call_has_its_module_also_without_stacks() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with profile(with_modules=True) as prof:
        model(torch.ones(1, 2)).sum().backward()
    modules = {event.name: event.module_hierarchy for event in prof.events()}
    assert modules["aten::addmm"] == modules["AddmmBackward0"] == "Sequential.0"
    assert modules["SumBackward0"] == ""
    assert not any(name.startswith("nn.Module") for name in modules)


def test_pain_19_an_exception_leaves_nothing_on() -> None:
    ready = []
    with pytest.raises(ZeroDivisionError), profile(on_trace_ready=ready.append, with_stack=True) as prof:
        torch.ones(1)
        1 / 0  # noqa: B018
    assert not _core.recording()
    assert ready == [prof]
    assert "aten::ones" in names(prof)
    ready.clear()


def test_pain_19_an_exception_in_on_trace_ready_leaves_nothing_on_and_is_seen_once() -> None:
    calls = []

    def fail(prof: profile) -> None:
        calls.append(prof.step_num)
        raise ZeroDivisionError

    plan = schedule(wait=0, warmup=1, active=1)
    with pytest.raises(ZeroDivisionError), profile(schedule=plan, on_trace_ready=fail) as prof:
        for _ in range(9):
            torch.ones(1)
            prof.step()
    assert calls == [2]
    assert not _core.recording()


def test_pain_19_a_profile_that_is_never_stopped(own_temporary_directory: Path) -> None:
    prof = profile()
    prof.start()
    torch.ones(1)
    del prof
    assert not _core.recording()
    program = "from torchreel.profiler import *\nimport torch\nprof = profile()\nprof.start()\ntorch.ones(1)"
    ended = run_forked(program, TMPDIR=str(own_temporary_directory))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not list(own_temporary_directory.glob("torchreel-profile-*"))


def test_pain_19_stopping_inside_the_block_loses_nothing() -> None:
    with profile() as prof:
        torch.ones(1)
        prof.stop()
        prof.step()
    assert "aten::ones" in names(prof)


def test_pain_21_a_second_profile_is_refused_and_the_first_goes_on() -> None:
    x = torch.ones(2)
    with profile() as outer:
        x.neg()
        with pytest.raises(AlreadyRecordingError, match="Another profile has been started"), profile():
            pass
        x.sign()
    assert names(outer) == ["aten::neg", "aten::sign"]
    waiting = profile(schedule=schedule(wait=5, warmup=1, active=1))
    waiting.start()
    with pytest.raises(AlreadyRecordingError, match="stop it before you start this one"):
        profile().start()
    waiting.stop()
    with profile() as later:
        x.sign()
    assert names(later) == ["aten::sign"]


def test_pain_21_a_profile_within_a_recording_is_refused(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "run.reel"):
        with pytest.raises(AlreadyRecordingError, match=r"run\.reel is already running"), profile():
            pass
        torch.ones(1)
    assert torchreel.load(tmp_path / "run.reel").ops.num_rows == 3
    assert not torch.autograd.profiler._is_profiler_enabled


def test_pain_21_metadata_may_be_added_at_any_time(tmp_path: Path) -> None:
    prof = profile(record_shapes=True)
    prof.add_metadata("before", 'a "text" \\')
    prof.preset_metadata_json("preset", "[1, 2]")
    prof.preset_metadata["by hand"] = "3"
    prof.start()
    torch.ones(1)
    prof.add_metadata_json("while", '{"a": null}')
    prof.stop()
    prof.add_metadata("after", "4")
    prof.add_metadata("schemaVersion", "mine")
    for name in ("trace.json", "trace.json.gz"):
        prof.export_chrome_trace(str(tmp_path / name))
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"] == trace["traceEvents"]
    expected = {"before": 'a "text" \\', "preset": [1, 2], "by hand": 3, "while": {"a": None}, "after": "4"}
    assert {key: trace[key] for key in expected} == expected
    assert trace["record_shapes"] == trace["schemaVersion"] == 1
    with pytest.raises(OptionError, match="which is not JSON"):
        prof.add_metadata_json("bad", "{")


def test_a_forked_child_neither_stops_nor_removes_its_parents_recording() -> None:
    with profile() as prof:
        torch.ones(1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                prof.__exit__(None, None, None)
                with profile() as own:
                    torch.zeros(1)
                code = 0 if names(own)[0] == "aten::zeros" else 2
                del own
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        torch.ones(1)
    assert names(prof).count("aten::ones") == 2
