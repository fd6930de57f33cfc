"""Child processes: each its own process in the same reel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import torchreel
from tests.record.rows import names, rows


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


class Squares(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index)).square()


def test_pain_11_dataloader_workers_are_processes_of_the_reel(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel", shapes=True):
        for batch in DataLoader(Squares(), batch_size=2, num_workers=2):
            batch.sum()
    reel = torchreel.load(tmp_path / "a.reel")
    processes = rows(reel, "select process, pid, parent_pid, complete, lost_events from processes order by process")
    assert len(processes) == 3
    assert processes[0]["pid"] == os.getpid()
    assert {row["parent_pid"] for row in processes[1:]} == {os.getpid()}
    assert all(row["complete"] and row["lost_events"] == 0 for row in processes)
    squares = rows(reel, "select process, count(*) as n from ops where name = 'aten::square' group by process")
    assert sorted(row["n"] for row in squares) == [4, 4]
    assert 0 not in {row["process"] for row in squares}
    assert len(names(reel, "name = 'aten::sum' and process = 0 and depth = 0")) >= 1
    assert not any(part.spooled for part in reel.parts)


def test_a_forked_child_never_writes_under_its_parents_name(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel"), torchreel.range("around the fork"):
        torch.ones(1)
        child = os.fork()
        if child == 0:
            try:
                torch.zeros(1)
            finally:
                os._exit(0)  # without any farewell
        os.waitpid(child, 0)
        time.sleep(0.3)
        torch.full((1,), 2.0)
    reel = torchreel.load(tmp_path / "a.reel")
    assert names(reel, "process = 0 and depth < 2") == ["around the fork", "aten::ones", "aten::full"]
    # The child left by os._exit within the recorder's flushing interval: what it wrote is there, or nothing is.
    assert names(reel, "process = 1 and depth = 0") in (["aten::zeros"], [])


def test_a_child_of_fork_that_exits_in_order_is_whole(tmp_path: Path) -> None:
    result = run(
        """
        import os, sys, torch, torchreel
        recorder = torchreel.record(sys.argv[1]).start()
        torch.ones(1)
        child = os.fork()
        if child == 0:
            torch.zeros(1)
            sys.exit(0)
        os.waitpid(child, 0)
        recorder.stop()
        """,
        tmp_path / "a.reel",
    )
    assert result.returncode == 0, result.stderr
    reel = torchreel.load(tmp_path / "a.reel")
    assert names(reel, "process = 0 and depth = 0") == ["aten::ones"]
    assert names(reel, "process = 1 and depth = 0") == ["aten::zeros"]
    assert rows(reel, "select complete from processes") == [{"complete": True}] * 2


def test_children_started_anew_by_spawn_and_by_subprocess(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, subprocess, sys, torch, torchreel

            def work(n):
                torch.arange(n).cumsum(0)

            if __name__ == "__main__":
                with torchreel.record(sys.argv[1], shapes=True):
                    torch.ones(1)
                    process = multiprocessing.get_context("spawn").Process(target=work, args=(5,))
                    process.start(); process.join()
                    assert process.exitcode == 0
                    subprocess.run([sys.executable, "-c", "import torch; torch.ones(3).cumprod(0)"], check=True)
                    subprocess.run([sys.executable, "-c", "print('no torch here')"], check=True)
                assert subprocess.run([sys.executable, "-c", "import torch; torch.ones(1)"]).returncode == 0
            """
        )
    )
    result = subprocess.run([sys.executable, script, tmp_path / "a.reel"], capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stderr
    reel = torchreel.load(tmp_path / "a.reel")
    assert len(reel.parts) <= 3
    assert len(names(reel, "name = 'aten::cumsum' and process > 0")) == 1
    assert len(names(reel, "name = 'aten::cumprod' and process > 0")) == 1
    assert rows(reel, "select count(*) as n from processes where not complete") == [{"n": 0}]
    assert rows(reel, "select count(inputs) > 0 as shapes from ops where process > 0") == [{"shapes": True}]


def test_children_can_be_left_out(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel", children=False):
        for _ in DataLoader(Squares(), batch_size=4, num_workers=1):
            pass
    assert len(torchreel.load(tmp_path / "a.reel").parts) <= 1


def test_a_killed_process_leaves_all_but_the_last_second(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import sys, time, torch, torchreel
                torchreel.record(sys.argv[1], shapes=True, stacks=True, memory=True).start()
                torch.ones(3)
                print("recorded", flush=True)
                while True:
                    torch.zeros(2)
                    time.sleep(0.001)
                """
            ),
            str(tmp_path / "a.reel"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "recorded\n"
    time.sleep(1.5)
    program.send_signal(signal.SIGKILL)
    killed = time.time_ns()
    program.wait()
    before = sorted((path, path.read_bytes()) for path in (tmp_path / "a.reel").rglob("*") if path.is_file())
    reel = torchreel.load(tmp_path / "a.reel")
    assert names(reel, "depth = 0")[0] == "aten::ones"
    assert len(names(reel, "name = 'aten::zeros'")) > 100
    last = rows(reel, "select max(start_ns) as t from ops")[0]["t"]
    assert killed - last < 1_000_000_000
    assert rows(reel, "select complete from processes") == [{"complete": False}]
    assert rows(reel, "select count(*) as n from ops where stack is null or inputs is null") == [{"n": 0}]
    after = sorted((path, path.read_bytes()) for path in (tmp_path / "a.reel").rglob("*") if path.is_file())
    assert before == after, "reading changed the reel"
