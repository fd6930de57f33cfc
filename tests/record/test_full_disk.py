"""A full disk: a sentence, and what was recorded before stays readable once there is room again."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import textwrap
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

NO_SPACE = "No space left on device"

# A disk of 8 MiB, the working directory, that can be filled and emptied.
COMMON = """
import glob, json, os, sys, time
import torch, torchreel

def until(condition):
    for _ in range(30_000):
        if condition():
            return
        time.sleep(0.01)
    sys.exit("what is waited for does not come about")

def fill():
    with open("ballast", "ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass

def empty():
    os.remove("ballast")

def work(count):
    x = torch.ones(1)
    for _ in range(count):
        x.add_(1)

def ops(path):
    return torchreel.load(path).sql("select count(*)::int as n from ops where name = 'aten::add_'").to_pylist()[0]["n"]
"""


@lru_cache(maxsize=1)
def problem() -> str:
    """Why no disk can be mounted here, or an empty text."""
    command = ["unshare", "-m", "--propagation", "private", "mount", "-t", "tmpfs", "-o", "size=8m", "none", "/mnt"]
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return "there is no command unshare"
    return result.stderr.strip() if result.returncode else ""


def on_small_disk(directory: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the shell whose working directory is a disk of 8 MiB."""
    if problem():
        pytest.skip(f"A small disk cannot be mounted here: {problem()}.")
    (directory / "disk").mkdir(exist_ok=True)
    (directory / "common.py").write_text(COMMON)
    shell = f"mount -t tmpfs -o size=8m none disk && cd disk && export PYTHONPATH={shlex.quote(str(directory))} && "
    program = ["unshare", "-m", "--propagation", "private", "bash", "-c", shell + command]
    return subprocess.run(program, capture_output=True, text=True, cwd=directory)


def run(directory: Path, script: str) -> tuple[Any, str]:
    """What the script printed, read as JSON, and what it said on stderr."""
    (directory / "script.py").write_text("from common import *\n" + textwrap.dedent(script))
    result = on_small_disk(directory, f"{shlex.quote(sys.executable)} ../script.py")
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    return json.loads(result.stdout), result.stderr


def test_a_disk_that_is_full_when_recording_stops(tmp_path: Path) -> None:
    script = """
    recorder = torchreel.record("run.reel").start()
    work(20_000)
    recorder.peek()
    fill()
    reel = recorder.stop()
    full = ops("run.reel")
    parquet = [str(file) for file in reel.path.rglob("*.parquet*")]
    empty()
    print(json.dumps({"full": full, "later": ops("run.reel"), "parquet": parquet}))
    """
    result, said = run(tmp_path, script)
    assert result == {"full": 20_000, "later": 20_000, "parquet": []}
    assert f"cannot be written: {NO_SPACE}. The reel can be read as it is" in said


def test_a_disk_that_is_full_during_the_recording(tmp_path: Path) -> None:
    script = """
    recorder = torchreel.record("run.reel").start()
    work(10_000)
    recorder.peek()
    fill()
    work(50_000)
    peeked = len(recorder.peek().ops)
    empty()
    reel = recorder.stop()
    process = reel.sql("select complete, lost_events > 0 as lost from processes").to_pylist()
    print(json.dumps({"ops": ops("run.reel"), "process": process, "peeked": peeked}))
    """
    result, said = run(tmp_path, script)
    assert 10_000 <= result["ops"] < 60_000
    assert result["peeked"] >= 10_000
    assert result["process"] == [{"complete": False, "lost": True}]
    assert said.count(f"run.reel holds the recording only up to the moment when the disk refused: {NO_SPACE}.") == 2


def test_a_recording_that_begins_on_a_full_disk_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    script = """
    fill()
    try:
        torchreel.record("run.reel").start()
    except torchreel.errors.UnwrittenReelError as error:
        print(json.dumps({"error": str(error), "left": os.path.exists("run.reel")}))
    """
    result, _ = run(tmp_path, script)
    assert result == {
        "error": f"run.reel/meta.json cannot be written: {NO_SPACE}. Make room on the disk.",
        "left": False,
    }


def test_a_flight_recorder_goes_on_when_its_dump_does_not_fit(tmp_path: Path) -> None:
    script = """
    recorder = torchreel.record("run.reel", ring="4MiB").start()
    work(10_000)
    open("room", "wb").write(bytes(100_000))
    fill()
    os.remove("room")
    try:
        recorder.dump()
    except torchreel.errors.RecorderError as error:
        problem = str(error)
    partly = ops("run.reel")
    empty()
    reel = recorder.dump("second.reel")
    recorder.stop()
    print(json.dumps({"problem": problem, "partly": 0 < partly < 10_000, "second": ops("second.reel")}))
    """
    result, _ = run(tmp_path, script)
    assert result["problem"].startswith(f"The flight recorder cannot be dumped to run.reel: {NO_SPACE}. What could be")
    assert result["partly"] is True
    assert result["second"] == 10_000


def test_a_child_process_says_so(tmp_path: Path) -> None:
    script = """
    recorder = torchreel.record("run.reel").start()
    work(10)
    recorder.peek()
    begun, filled = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.write(begun[1], b".")
        os.read(filled[0], 1)
        work(100_000)
        sys.exit(0)
    os.read(begun[0], 1)
    fill()
    if os.fork() == 0:
        work(10)
        sys.exit(0)
    _, second = os.wait()
    os.write(filled[1], b".")
    _, status = os.wait()
    empty()
    recorder.stop()
    print(json.dumps({"status": status + second, "ops": ops("run.reel") >= 10}))
    """
    result, said = run(tmp_path, script)
    assert result == {"status": 0, "ops": True}
    assert "is not recorded into" in said  # the one that began on a full disk
    assert f"only up to the moment when the disk refused: {NO_SPACE}." in said


SCRIPT = """
from common import *
work(20_000)
until(lambda: "--ring" in sys.argv or any(os.path.getsize(file) > 10_000 for file in glob.glob("*/*/spool/events")))
fill()
sys.exit(3)
"""


def record_by_command(directory: Path, options: str, then: str) -> subprocess.CompletedProcess[str]:
    (directory / "script.py").write_text(SCRIPT)
    command = (
        f"python -m torchreel record {options} -o run.reel ../script.py {options}; echo code $?; rm ballast; {then}"
    )
    result = on_small_disk(directory, f'python() {{ {shlex.quote(sys.executable)} "$@"; }}; {command}')
    assert result.stdout.startswith("code 3\n")
    assert NO_SPACE in result.stderr
    strange = [line for line in result.stderr.splitlines() if not line.startswith(("torchreel: ", "Recorded "))]
    assert strange == []
    return result


def test_on_the_command_line_the_exit_code_is_the_scripts(tmp_path: Path) -> None:
    result = record_by_command(tmp_path, "", "python -m torchreel report run.reel --limit 20")
    assert result.returncode == 0, result.stderr
    assert "aten::add_" in result.stdout
    assert "ops on 1 thread of 1 process" in result.stdout


def test_on_the_command_line_a_flight_recorder_says_so(tmp_path: Path) -> None:
    result = record_by_command(tmp_path, "--ring 4MB", "ls")
    assert result.stdout == "code 3\n"  # no reel that cannot be opened is left
