"""Kineto beside the recorder. Where there is no GPU, Kineto reads the ranges of the CPU, and all else is the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.alone import run_forked
from tests.record.test_jobs import environment
from torchreel.errors import OptionError, UnavailableError
from torchreel.record import RecordOptions

# The CPU in the place of a device, a program, and what each join said.
PROGRAM = """
    import os, sys
    import torch, torchreel
    from torchreel._torch import kineto
    from torchreel.record import device_activity

    kineto.device_activities = lambda: kineto.CPU
    joined = []
    join = device_activity.join_device
    device_activity.join_device = lambda *halves: joined.append(join(*halves)) or joined[-1]

    model = torch.nn.Linear(4, 4)
    def step(number):
        with torchreel.range(f"step {number}"):
            model(torch.ones(2, 4)).sum()

    def alignments():
        return [(one.alignment.marks, one.alignment.disagreeing, one.alignment.error_ns is None) for one in joined]

"""


def ran(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run the program and then the script, which is indented as the program is."""
    result = run_forked(PROGRAM + script, directory=tmp_path)
    said = [line for line in result.stderr.splitlines() if line.startswith(("torchreel", "Traceback"))]
    result.stderr = "\n".join(said)
    return result


def rows(reel: torchreel.Reel, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reel.sql(f"select * from {table} order by process, id").to_pylist()
    return found


def ranges(reel: torchreel.Reel) -> list[str]:
    return [row["name"] for row in rows(reel, "ops") if row["kind"] == "range"]


def left(reel: torchreel.Reel) -> list[str]:
    """Files of the process that are no tables."""
    return [file.name for part in reel.parts for file in part.directory.iterdir() if file.suffix != ".parquet"]


def test_both_see_the_ranges_and_the_reel_has_only_the_programs(tmp_path: Path) -> None:
    script = """
    with torchreel.record("run.reel", gpu=True, memory=True, stacks=True, modules=True, flops=True):
        step(0)
        step(1)
    print(alignments())
    """
    result = ran(tmp_path, script)
    assert (result.returncode, result.stdout, result.stderr) == (0, "[(16, 0, False)]\n", "")
    reel = torchreel.load(tmp_path / "run.reel")
    assert ranges(reel) == ["step 0", "step 1"]
    assert left(reel) == []
    assert reel.process_rows()[0]["complete"]
    # Nothing is missing of what a recording without devices has.
    without = """
    with torchreel.record("plain.reel", memory=True, stacks=True, modules=True, flops=True):
        step(0)
        step(1)
    """
    assert ran(tmp_path, without).returncode == 0
    plain = torchreel.load(tmp_path / "plain.reel")
    for table, columns in {
        "ops": ("name", "kind", "depth", "step", "flops", "alloc_bytes", "seq"),
        "allocs": ("action", "size"),
        "modules": ("path",),
    }.items():
        assert [tuple(row[name] for name in columns) for row in rows(reel, table)] == [
            tuple(row[name] for name in columns) for row in rows(plain, table)
        ]
    for one in (reel, plain):
        parents = {row["id"]: row for row in rows(one, "ops")}
        assert all(parents[row["parent"]]["depth"] == row["depth"] - 1 for row in parents.values() if row["depth"])


def test_each_span_of_a_schedule_has_a_trace_of_its_own(tmp_path: Path) -> None:
    script = """
    cycles = torchreel.schedule(wait=1, active=2, repeat=2)
    with torchreel.record("run.reel", gpu=True, schedule=cycles) as recorder:
        for number in range(7):
            step(number)
            recorder.step()
    print(alignments())
    """
    result = ran(tmp_path, script)
    assert result.stderr == ""
    assert ranges(torchreel.load(tmp_path / "run.reel")) == ["step 1", "step 2", "step 4", "step 5"]
    # The first span ends as it begins, because the first step is not recorded.
    assert result.stdout == f"{[(16, 0, False)] * 3}\n"


def test_an_exception_of_the_program_leaves_a_whole_reel(tmp_path: Path) -> None:
    script = """
    with torchreel.record("run.reel", gpu=True):
        step(0)
        raise SystemError("the program's own")
    """
    result = ran(tmp_path, script)
    assert result.returncode == 1
    reel = torchreel.load(tmp_path / "run.reel")
    assert (ranges(reel), left(reel), reel.process_rows()[0]["complete"]) == (["step 0"], [], True)


def test_a_thread_other_than_the_one_that_began_may_end_it(tmp_path: Path) -> None:
    script = """
    import threading
    recorder = torchreel.record("run.reel", gpu=True).start()
    step(0)
    thread = threading.Thread(target=recorder.stop)
    thread.start()
    thread.join()
    print(alignments())
    """
    result = ran(tmp_path, script)
    assert (result.stdout, result.stderr) == ("[(16, 0, False)]\n", "")
    assert ranges(torchreel.load(tmp_path / "run.reel")) == ["step 0"]


def test_a_program_that_uses_torchs_profiler_keeps_it_and_the_loss_is_said(tmp_path: Path) -> None:
    script = """
    with torchreel.record("run.reel", gpu=True):
        step(0)
        with torch.profiler.profile() as profile:
            step(1)
    print(len(profile.events()) > 0, alignments())
    """
    result = ran(tmp_path, script)
    assert result.stdout == "True []\n"
    assert result.stderr == (
        "torchreel: The program has used torch.profiler, which took Kineto from the recording: what devices did is "
        "not in the reel. Record without gpu, or the program without its profiler."
    )
    assert ranges(torchreel.load(tmp_path / "run.reel")) == ["step 0", "step 1"]


def test_a_profiler_that_is_on_is_not_ended(tmp_path: Path) -> None:
    script = """
    with torch.profiler.profile() as profile:
        try:
            torchreel.record("run.reel", gpu=True).start()
        except torchreel.errors.UnavailableError as error:
            print(error)
        step(0)
    print(len(profile.events()) > 0, os.path.exists("run.reel"))
    """
    result = ran(tmp_path, script)
    assert result.stdout == (
        "torch.profiler is on, and Kineto reads devices for one at a time: stop it first, or record without gpu.\n"
        "True False\n"
    )


def test_what_is_thrown_away_leaves_nothing_and_another_can_begin(tmp_path: Path) -> None:
    script = """
    recorder = torchreel.record("run.reel", gpu=True).start()
    step(0)
    recorder.discard()
    print(os.path.exists("run.reel"))
    with torchreel.record("run.reel", gpu=True):
        step(1)
    print(alignments())
    """
    result = ran(tmp_path, script)
    assert (result.stdout, result.stderr) == ("False\n[(16, 0, False)]\n", "")
    assert ranges(torchreel.load(tmp_path / "run.reel")) == ["step 1"]


def test_a_trace_that_cannot_be_joined_is_kept_and_said(tmp_path: Path) -> None:
    script = """
    def fails(*halves):
        raise ValueError("no such thing")
    device_activity.join_device = fails
    with torchreel.record("run.reel", gpu=True):
        step(0)
    """
    result = ran(tmp_path, script)
    reel = torchreel.load(tmp_path / "run.reel")
    assert left(reel) == ["devices-0.json"]
    kept = reel.parts[0].directory.relative_to(tmp_path) / "devices-0.json"
    assert result.stderr.startswith("torchreel: What devices did is not joined with the ops: no such thing")
    assert result.stderr.endswith(f"{kept}.")
    assert "step 0" in ranges(reel)


def test_forked_children_record_without_devices_and_leave_the_parents_alone(tmp_path: Path) -> None:
    script = """
    import multiprocessing
    with torchreel.record("run.reel", gpu=True):
        step(0)
        child = multiprocessing.get_context("fork").Process(target=step, args=(1,))
        child.start()
        child.join()
        step(2)
    print(alignments())
    """
    result = ran(tmp_path, script)
    assert (result.stdout, result.stderr) == ("[(16, 0, False)]\n", "")
    reel = torchreel.load(tmp_path / "run.reel")
    assert sorted(ranges(reel)) == ["step 0", "step 1", "step 2"]
    assert len(reel.parts) == 2


@pytest.mark.programs
def test_each_rank_of_torchrun_has_its_own_trace(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "\n".join(line[4:] for line in PROGRAM.splitlines())
        + """
import torch.distributed as dist
dist.init_process_group("gloo")
with torchreel.record("run.reel", gpu=True):
    step(dist.get_rank())
    dist.barrier()
assert alignments() == [(16, 0, False)]
dist.destroy_process_group()
"""
    )
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = subprocess.run(
        [sys.executable, *launcher, script], capture_output=True, text=True, cwd=tmp_path, env=environment()
    )
    assert done.returncode == 0, done.stderr
    reel = torchreel.load(tmp_path / "run.reel")
    assert sorted(row["rank"] for row in reel.process_rows()) == [0, 1]
    assert sorted(name for name in ranges(reel) if name.startswith("step")) == ["step 0", "step 1"]
    assert left(reel) == []


def test_without_a_gpu_it_is_refused_before_anything_is_begun(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as refused:
        torchreel.record(tmp_path / "run.reel", gpu=True).start()
    assert str(refused.value) == (
        "There is no GPU whose activity could be recorded: torch finds none here, or its Kineto cannot read it. "
        "Record without gpu, or on a machine with one."
    )
    assert not (tmp_path / "run.reel").exists()


def test_a_flight_recorder_has_no_devices() -> None:
    with pytest.raises(OptionError, match="A flight recorder has no place for what devices do"):
        RecordOptions(gpu=True, ring="64MB")
