"""Child processes: each its own process in the same reel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import torchreel
from tests.alone import run_forked
from tests.record.rows import names, rows
from tests.waiting import until
from torchreel import _core


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_forked(textwrap.dedent(script), *arguments)


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
            problem = "not asked"
            try:
                torch.zeros(1)
                problem = _core.flush()
            finally:
                os._exit(problem != "")  # without any farewell
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert _core.flush() == ""
        torch.full((1,), 2.0)
    reel = torchreel.load(tmp_path / "a.reel")
    assert names(reel, "process = 0 and depth < 2") == ["around the fork", "aten::ones", "aten::full"]
    assert names(reel, "process = 1 and depth = 0") == ["aten::zeros"]


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
    result = subprocess.run([sys.executable, script, tmp_path / "a.reel"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    reel = torchreel.load(tmp_path / "a.reel")
    assert len(reel.parts) == 3
    assert len(names(reel, "name = 'aten::cumsum' and process > 0")) == 1
    assert len(names(reel, "name = 'aten::cumprod' and process > 0")) == 1
    assert rows(reel, "select count(*) as n from processes where not complete") == [{"n": 0}]
    assert rows(reel, "select count(inputs) > 0 as shapes from ops where process > 0") == [{"shapes": True}]


def test_children_can_be_left_out(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel", children=False):
        for _ in DataLoader(Squares(), batch_size=4, num_workers=1):
            pass
    assert len(torchreel.load(tmp_path / "a.reel").parts) == 1


def test_a_killed_process_leaves_all_but_what_was_not_flushed(tmp_path: Path) -> None:
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
    until(lambda: list((tmp_path / "a.reel").rglob("spool/events")))
    (events,) = (tmp_path / "a.reel").rglob("spool/events")
    until(lambda: events.stat().st_size >= 100_000)  # many flushes, however slow the machine is
    size = events.stat().st_size
    until(lambda: events.stat().st_size > size)  # one more: nothing is held back for longer than that
    program.send_signal(signal.SIGKILL)
    program.wait()
    before = sorted((path, path.read_bytes()) for path in (tmp_path / "a.reel").rglob("*") if path.is_file())
    reel = torchreel.load(tmp_path / "a.reel")
    assert names(reel, "depth = 0")[0] == "aten::ones"
    assert len(names(reel, "name = 'aten::zeros'")) > 100
    assert rows(reel, "select complete from processes") == [{"complete": False}]
    assert rows(reel, "select count(*) as n from ops where stack is null or inputs is null") == [{"n": 0}]
    after = sorted((path, path.read_bytes()) for path in (tmp_path / "a.reel").rglob("*") if path.is_file())
    assert before == after, "reading changed the reel"


_CHANGES_DIRECTORY = """
    import multiprocessing, os, sys
    import torch, torchreel

    def work():
        os.chdir("/")
        torch.ones(5).sin()

    if __name__ == "__main__":
        recorder = torchreel.record("run.reel").start()
        torch.ones(1).exp()
        os.chdir("elsewhere")
        torch.ones(1).cos()
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join()
        print(child.exitcode, recorder.peek().sql("select count(*) as n from ops where depth = 0").to_pylist())
        print(recorder.stop().path)
"""


def test_a_program_may_go_to_another_directory(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    script = textwrap.dedent(_CHANGES_DIRECTORY)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert result.stderr == ""
    assert result.stdout.splitlines()[-1] == str(tmp_path / "run.reel")
    assert not list((tmp_path / "elsewhere").iterdir())
    reel = torchreel.load(tmp_path / "run.reel")
    assert reel.meta["state"] == "closed" and not any(part.spooled for part in reel.parts)
    assert {"aten::exp", "aten::cos"} <= set(names(reel, "process = 0"))
    assert names(reel, "process = 1 and depth = 0") == ["aten::ones", "aten::sin"]


def test_a_reel_that_is_discarded_stays_away_when_children_end_later(tmp_path: Path) -> None:
    script = """
        import multiprocessing, sys
        import torch, torchreel

        def work(started, discarded):
            torch.ones(2)
            started.set()
            discarded.wait()
            torch.ones(3)

        recorder = torchreel.record(sys.argv[1]).start()
        fork = multiprocessing.get_context("fork")
        started, discarded = fork.Event(), fork.Event()
        child = fork.Process(target=work, args=(started, discarded))
        child.start()
        started.wait()
        recorder.discard()
        discarded.set()
        child.join()
        print(child.exitcode)
    """
    result = run(script, tmp_path / "a.reel")
    assert (result.stdout, result.stderr) == ("0\n", "")
    assert not list(tmp_path.iterdir())
