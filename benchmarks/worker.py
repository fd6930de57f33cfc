"""A process that holds one program under one allocator, and runs a window of it whenever it is asked.

An allocator belongs to a process from its start: glibc where torchreel is never imported, tcmalloc by LD_PRELOAD. So
that neighbouring windows can be compared all the same, the processes live side by side and take turns.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import child
from benchmarks.rounds import Pair, interleave

GLIBC = "glibc"
PASSING = "torchreel's allocator passing through to glibc"
CACHING = "caching"
TCMALLOC = "tcmalloc"
GLIBC_HISTORY = "glibc with history"
CACHING_HISTORY = "caching with history"

# What would make one process differ from another besides the allocator that is asked for.
_CLEARED = ("LD_PRELOAD", "TORCHREEL_ALLOCATOR", "GLIBC_TUNABLES", "THP_MEM_ALLOC_ENABLE")


def tcmalloc() -> str | None:
    """The name under which it can be preloaded, if it is installed."""
    return ctypes.util.find_library("tcmalloc_minimal")


class Worker:
    """The process, as seen by the one that asks it."""

    def __init__(self, program: str, allocator: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in _CLEARED}
        # A thread that spins until its next part comes takes CPU time for nothing: of a step with many short parts on a
        # busy machine, more than the step itself.
        environment["OMP_WAIT_POLICY"] = "passive"
        if allocator == TCMALLOC:
            environment["LD_PRELOAD"] = tcmalloc() or ""
        self._name = f"The process that runs the {program} with {allocator}"
        command = [sys.executable, "-m", __name__, program, allocator]
        self._process = subprocess.Popen(
            command, cwd=child.ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.faults: list[float] = []
        self.peak_bytes = 0

    def wait(self) -> None:
        """Until the program is built and warm."""
        self._answer()

    def window(self) -> float:
        """CPU nanoseconds per step, of all threads, in user and system mode."""
        assert self._process.stdin is not None
        self._process.stdin.write("window\n")
        self._process.stdin.flush()
        answer = self._answer()
        self.faults.append(answer["faults"])
        self.peak_bytes = answer["peak_bytes"]
        return float(answer["cpu_ns"])

    def end(self) -> None:
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} ended with exit code {self._process.wait()}.")
        return json.loads(line)


@dataclass
class Rounds:
    """What came of one program: per allocator and round, CPU time beside the bare one, faults per step, peak bytes."""

    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    faults: dict[str, list[float]] = field(default_factory=dict)
    peaks: dict[str, list[float]] = field(default_factory=dict)


def compare(program: str, bare: str, others: Sequence[str], *, rounds: int, windows: int) -> Rounds:
    """Each round has processes of its own: where their memory happens to lie is part of the spread."""
    result = Rounds()
    for _ in range(rounds):
        with _workers(program, (bare, *others)) as workers:
            _add_round(result, workers, bare, windows)
    return result


def _add_round(result: Rounds, workers: dict[str, Worker], bare: str, windows: int) -> None:
    def window(allocator: str) -> float:
        return workers[allocator].window()

    others = [allocator for allocator in workers if allocator != bare]
    pairs = interleave(window, bare, [others], lambda _: 0, rounds=1, windows=windows)
    for allocator, several in pairs.items():
        result.pairs.setdefault(allocator, []).extend(several)
    for allocator, worker in workers.items():
        result.faults.setdefault(allocator, []).append(statistics.median(worker.faults))
        result.peaks.setdefault(allocator, []).append(worker.peak_bytes)


@contextlib.contextmanager
def _workers(program: str, allocators: Sequence[str]) -> Iterator[dict[str, Worker]]:
    workers = {allocator: Worker(program, allocator) for allocator in allocators}
    try:
        for worker in workers.values():
            worker.wait()
        yield workers
    finally:
        for worker in workers.values():
            worker.end()


def _choose(allocator: str) -> None:
    if allocator in (GLIBC, TCMALLOC):
        return
    from torchreel import memory

    memory.use_caching_allocator()
    if allocator in (PASSING, GLIBC_HISTORY):
        memory.use_caching_allocator(False)
    if allocator in (GLIBC_HISTORY, CACHING_HISTORY):
        memory.record_history(context="all", stacks="python")


def _main(name: str, allocator: str) -> None:
    import torch

    from benchmarks.programs import PROGRAMS

    _choose(allocator)
    program = PROGRAMS[name]
    if program.threads is not None:
        torch.set_num_threads(program.threads)
    torch.manual_seed(0)
    step = program.build()
    for _ in range(2 * program.warm_up):
        step()
    gc.collect()
    gc.freeze()
    gc.disable()
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        # One loop, so that all steps have the same stack; the first ones warm up.
        for index in range(program.warm_up + program.steps):
            if index == program.warm_up:
                faults, cpu = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time_ns()
            step()
        cpu = time.process_time_ns() - cpu
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        answer = {"cpu_ns": cpu / program.steps, "faults": faults / program.steps, "peak_bytes": child.peak_bytes()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
