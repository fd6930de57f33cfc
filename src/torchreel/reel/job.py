"""The job that a process belongs to: ranks that were started together, and record into one reel.

Read from the environment that launchers set, and from torch.distributed if it is there already. Nothing is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Of each launcher the variables of rank, world size and local rank.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)


@dataclass(frozen=True)
class Rank:
    """Which of the processes of a distributed program this is."""

    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def current_rank(environment: Mapping[str, str] = os.environ) -> Rank:
    """By torch.distributed if it is initialized, else by what the launcher set."""
    local = next((n for *_, name in _LAUNCHERS if (n := _number(environment, name)) is not None), None)
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Rank(distributed.get_rank(), distributed.get_world_size(), local)
    for rank_name, size_name, local_name in _LAUNCHERS:
        rank, size = _number(environment, rank_name), _number(environment, size_name)
        if rank is not None and size is not None and rank < size:
            return Rank(rank, size, _number(environment, local_name))
    return Rank()


@dataclass(frozen=True)
class Job:
    """One start of a distributed program. Its ranks find each other by `id`."""

    id: str
    restart: int
    """How often an elastic launcher has started the ranks again."""
    rank: int
    world_size: int
    local_rank: int | None
    launcher: tuple[str, str] | None
    """Where the ranks of this node were started, and by which process: names of jobs come again, this does not."""

    @property
    def speaks(self) -> bool:
        """Whether this rank says for all of its machine what concerns all."""
        return self.rank == 0 or self.local_rank == 0


def _job_id(environment: Mapping[str, str]) -> str | None:
    get = environment.get
    if get("TORCHELASTIC_RUN_ID"):
        return f"torchelastic {get('TORCHELASTIC_RUN_ID')} {get('MASTER_ADDR', '')}:{get('MASTER_PORT', '')}"
    if get("SLURM_JOB_ID") and get("SLURM_STEP_ID"):
        return f"slurm {get('SLURM_JOB_ID')}.{get('SLURM_STEP_ID')}"
    if get("OMPI_MCA_ess_base_jobid"):
        return f"mpi {get('OMPI_MCA_ess_base_jobid')}"
    if get("MASTER_ADDR") and get("MASTER_PORT"):
        return f"master {get('MASTER_ADDR')}:{get('MASTER_PORT')}"
    return None


def current_job(environment: Mapping[str, str] = os.environ) -> Job | None:
    """The job of this process, or None for a program of one process."""
    current = current_rank(environment)
    job = _job_id(environment)
    if job is None or current.rank is None or current.world_size is None:
        return None
    elastic = "TORCHELASTIC_RUN_ID" in environment
    return Job(
        id=job,
        restart=(_number(environment, "TORCHELASTIC_RESTART_COUNT") or 0) if elastic else 0,
        rank=current.rank,
        world_size=current.world_size,
        local_rank=current.local_rank,
        launcher=_launcher(environment.get("GROUP_RANK", "")) if elastic else None,
    )


@dataclass(frozen=True)
class Identity:
    """What tells a process from every other, also from a later one with its number."""

    machine: str
    """The machine since it was started, and its container: those count their processes apart."""
    process: str

    def may_be_alive(self) -> bool:
        """Of a process of another machine only that machine knows."""
        pid = self.process.partition(" ")[0]
        if self.machine != _machine():
            return True
        return pid.isdecimal() and identity_of(int(pid)) == self


def _machine() -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _status(pid: int) -> list[str]:
    """The fields of /proc/PID/stat that follow the command."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def identity_of(pid: int) -> Identity | None:
    """None if there is no such process any more, or nothing tells."""
    machine = _machine()
    try:
        status = _status(pid)
        state, began = status[0], status[19]
    except (OSError, IndexError):
        return None
    return None if machine is None or state in "ZX" else Identity(machine, f"{pid} {began}")


def _launcher(group: str) -> tuple[str, str] | None:
    """The nearest ancestor that is not itself a rank; two nodes of one job may be on one machine."""
    try:
        pid = int(_status(os.getpid())[1])
        while pid > 1 and b"TORCHELASTIC_RUN_ID=" in Path(f"/proc/{pid}/environ").read_bytes():
            pid = int(_status(pid)[1])
    except (OSError, ValueError, IndexError):
        return None
    identity = identity_of(pid)
    return (f"{identity.machine} node {group}", identity.process) if identity is not None else None
