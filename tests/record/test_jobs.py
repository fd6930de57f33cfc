"""Ranks of one job: however they are started, they record into one reel, and none loses anything."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import torchreel
from tests.alone import run_forked
from tests.record.rows import rows
from torchreel.errors import ReelExistsError
from torchreel.reel import joining
from torchreel.reel.job import Job, current_job, current_rank, identity_of
from torchreel.reel.meta import read_meta

TRAIN = """
import os, sys
import torch
import torch.distributed as dist

def train():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 4)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        parallel(torch.ones(2, 4) + dist.get_rank()).sum().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
"""

# What launchers and recorders before us have set is not the test's.
OURS = ("TORCHREEL_CHILD", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    return {**kept, "OMP_NUM_THREADS": "1"}


def command(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, env=environment()
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check(path: Path, ranks: int) -> None:
    reel = torchreel.load(path)
    processes = rows(reel, "select * from processes order by rank")
    assert sorted(row["rank"] for row in processes) == list(range(ranks))
    assert all(row["world_size"] == ranks and row["complete"] and row["lost_events"] == 0 for row in processes)
    assert all(row["name"].startswith(f"rank{row['rank']:05d}-") for row in processes)
    assert [row["local_rank"] for row in processes] == list(range(ranks))
    steps = rows(reel, "select process, step, count(*) as n from ops where name = 'aten::mm' group by all order by all")
    assert {row["step"] for row in steps} >= {0, 1, 2}
    assert len({row["process"] for row in steps}) == ranks
    assert rows(reel, "select count(*) as n from steps") == [{"n": 4 * ranks}]
    assert not any(part.spooled for part in reel.parts)
    assert read_meta(path)["state"] == "closed"
    assert all(entry.name == "meta.json" or entry.name.startswith("rank") for entry in path.iterdir())
    left = [entry.name for part in reel.parts for entry in part.directory.iterdir() if entry.suffix != ".parquet"]
    assert left == []


def check_sources(directory: Path, ranks: int) -> None:
    """Each rank has the text of its own script, whoever started it, and of no library."""
    own = rows(torchreel.load(directory / "run.reel"), "select process, path, text from sources where text is not null")
    script = directory / "train.py"
    assert sorted(own, key=lambda row: row["process"]) == [
        {"process": rank, "path": str(script), "text": script.read_text()} for rank in range(ranks)
    ]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN + "\ntrain()\n")
    (tmp_path / "recorded.py").write_text(
        TRAIN + "\nimport torchreel\nwith torchreel.record('run.reel'):\n    train()\n"
    )
    return tmp_path


def test_torchreel_runs_torchrun(directory: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    result = command("-m", "torchreel", "record", "--stacks", "-o", "run.reel", *launcher, "train.py", cwd=directory)
    assert result.returncode == 0, result.stderr
    check(directory / "run.reel", 2)
    check_sources(directory, 2)


def test_torchrun_runs_torchreel(directory: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-port", free_port())
    result = command(*launcher, "-m", "torchreel", "record", "--stacks", "-o", "run.reel", "train.py", cwd=directory)
    assert result.returncode == 0, result.stderr
    check(directory / "run.reel", 2)
    check_sources(directory, 2)
    assert result.stderr.count("Recorded ") == 1 and "of 2 processes" in result.stderr
    again = command(*launcher, "-m", "torchreel", "record", "-o", "run.reel", "train.py", cwd=directory)
    assert again.returncode != 0
    assert again.stderr.count("Error: run.reel already exists and is not overwritten") == 1
    check(directory / "run.reel", 2)


def test_each_rank_has_a_recorder(directory: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    result = command(*launcher, "recorded.py", cwd=directory)
    assert result.returncode == 0, result.stderr
    check(directory / "run.reel", 2)


@pytest.mark.long
@pytest.mark.parametrize("time", range(20))
def test_four_ranks_time_and_again(directory: Path, time: int) -> None:
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", 4, "--master-port", free_port())
    result = command(*launcher, "-m", "torchreel", "record", "-o", "run.reel", "train.py", cwd=directory)
    assert result.returncode == 0, result.stderr
    check(directory / "run.reel", 4)


def ranks_at_once(script: str, count: int, cwd: Path) -> None:
    """Ranks that no launcher started: a job by MASTER_ADDR and MASTER_PORT."""
    job = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}
    result = run_forked(RANKS, textwrap.dedent(script), count, directory=cwd, OMP_NUM_THREADS="1", **job)
    assert result.returncode == 0, result.stderr


RANKS = """
import os, sys
ranks = []
for rank in range(int(sys.argv[2])):
    ranks.append(os.fork())
    if ranks[-1] == 0:
        for name in ("TORCHREEL_CHILD", "LOCAL_RANK"):  # of whoever runs these tests
            os.environ.pop(name, None)
        os.environ["RANK"] = str(rank)
        exec(compile(sys.argv[1], "<rank>", "exec"), {"__name__": "__main__"})
        sys.exit()
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) != 0 for rank in ranks))
"""


def test_force_acts_once_per_job_and_default_names_agree(tmp_path: Path) -> None:
    script = """
        import os, torch, torchreel
        with torchreel.record("old.reel", force=True):
            torch.ones(int(os.environ["RANK"]) + 1)
        from torchreel.cli.record import _start
        from torchreel.record import RecordOptions
        recorder = _start(None, False, RecordOptions())
        torch.ones(1)
        recorder.stop()
    """
    with torchreel.record(tmp_path / "old.reel"):
        pass
    (tmp_path / "run.reel").mkdir()
    ranks_at_once(script, 4, tmp_path)
    for name in ("old.reel", "run-2.reel"):
        reel = torchreel.load(tmp_path / name)
        assert rows(reel, "select rank, complete from processes order by rank") == [
            {"rank": rank, "complete": True} for rank in range(4)
        ]
        assert reel.meta["state"] == "closed"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["old.reel", "run-2.reel", "run.reel"]


def test_a_job_that_discards_leaves_nothing(tmp_path: Path) -> None:
    script = """
        import os, torch, torchreel
        recorder = torchreel.record("a.reel").start()
        torch.ones(1)
        child = os.fork()
        if child == 0:
            torch.ones(2)
            torchreel.current_recorder().stop()
            os._exit(0)
        os.waitpid(child, 0)
        recorder.discard()
    """
    ranks_at_once(script, 2, tmp_path)
    assert list(tmp_path.iterdir()) == []


def job(rank: int, *, id: str = "torchelastic none :", restart: int = 0, launcher: str = "7 100") -> Job:
    return Job(id, restart, rank, 2, rank, ("this machine node 0", launcher))


def test_a_name_that_comes_again_is_not_the_same_job(tmp_path: Path) -> None:
    path = tmp_path / "a.reel"
    first = joining.begin(path, {"state": "recording"}, job(0))
    assert first.made
    with pytest.raises(ReelExistsError, match="already exists"):
        joining.begin(path, {}, job(1, launcher="9 200"))  # `torchrun` once more: its run id is "none" again
    with pytest.raises(ReelExistsError, match="already exists"):
        joining.begin(path, {}, job(1, id="slurm 3.0"))
    with pytest.raises(ReelExistsError, match="already holds a recording of rank 0"):
        joining.begin(path, {}, job(0))
    second = joining.begin(path, {}, job(1))
    assert not second.made
    directory = joining.claim_directory(path, {"rank": 0})
    joining.end(first)
    assert read_meta(path)["state"] == "recording"
    joining.end(second)
    assert read_meta(path)["state"] == "closed"
    assert directory.is_dir()
    with pytest.raises(ReelExistsError):
        joining.begin(path, {}, job(1))


def test_of_ranks_that_end_at_once_one_closes_the_reel(tmp_path: Path) -> None:
    for turn in range(30):
        path = tmp_path / f"{turn}.reel"
        opened = [joining.begin(path, {"state": "recording"}, job(rank)) for rank in range(2)]
        joining.claim_directory(path, {"rank": 0})
        together = threading.Barrier(2)

        def end(one: joining.OpenReel, together: threading.Barrier = together) -> bool:
            together.wait()
            return joining.end(one)

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(end, opened)) == [False, True]
        assert read_meta(path)["state"] == "closed"


def test_ranks_that_were_restarted_have_a_reel_beside_the_first(tmp_path: Path) -> None:
    path = tmp_path / "a.reel"
    joining.begin(path, {"state": "recording"}, job(0))
    made = [joining.begin(path, {"state": "recording"}, job(rank, restart=2)) for rank in range(2)]
    assert [opened.path.name for opened in made] == ["a-restart-2.reel"] * 2
    assert [opened.made for opened in made] == [True, False]
    assert read_meta(path)["job"]["restart"] == 0


def test_directories_of_processes_are_never_shared(tmp_path: Path) -> None:
    names = [joining.claim_directory(tmp_path, {"rank": 42}).name for _ in range(3)]
    assert len(set(names)) == 3
    assert all(name.startswith("rank00042-") for name in names)


def test_a_reel_that_is_being_recorded_is_not_replaced(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel", children=False):
        with pytest.raises(ReelExistsError, match="is being recorded by process"):
            joining.check_replaceable(tmp_path / "a.reel")
        with pytest.raises(ReelExistsError, match="is being recorded by process"):
            joining.begin(tmp_path / "a.reel", {}, None, replace=True)
    joining.check_replaceable(tmp_path / "a.reel")


@pytest.mark.parametrize(
    ("variables", "rank", "found"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1), None),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0"}, (3, 8, 0), None),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (3, 4, None), None),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2, None), None),
        ({"RANK": "9", "WORLD_SIZE": "8"}, (None, None, None), None),
        ({"RANK": "x", "WORLD_SIZE": "8"}, (None, None, None), None),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, (1, 2, None), "master a:1"),
        (
            {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0"},
            (1, 2, None),
            "slurm 5.0",
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_ess_base_jobid": "77"},
            (1, 2, None),
            "mpi 77",
        ),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "3"},
            (1, 2, None),
            "torchelastic none :",
        ),
    ],
)
def test_ranks_and_jobs_by_the_environment(
    variables: dict[str, str], rank: tuple[int | None, ...], found: str | None
) -> None:
    place = current_rank(variables)
    assert (place.rank, place.world_size, place.local_rank) == rank
    known = current_job(variables)
    assert (known.id if known else None) == found
    if found is not None and found.startswith("torchelastic"):
        assert known is not None and known.restart == 3


def test_a_process_is_known_from_a_later_one_with_its_number() -> None:
    me = identity_of(os.getpid())
    assert me is not None and me.may_be_alive()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    theirs = identity_of(child.pid)
    assert theirs is not None and theirs.may_be_alive()
    child.communicate()
    assert not theirs.may_be_alive()
    other = json.loads(json.dumps([me.machine, me.process.split()[0] + " 1"]))
    assert not type(me)(*other).may_be_alive()
    assert type(me)("another machine", me.process).may_be_alive()
