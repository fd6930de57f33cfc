"""How many instructions does recording add to an op, counted by valgrind: where do the nanoseconds go?

Not part of `make bench`: it needs valgrind and its headers. The counts are the same on a busy machine and an idle one,
but say nothing of the time that an instruction takes: a reading of the clock is one, and takes ten nanoseconds.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.child import ROOT
from benchmarks.result import Result, Spread

OPS = 2_000
REPEATS = 3

_OPTIONS = {
    "ops": ((), ()),
    "shapes": (("shapes",), ("record_shapes",)),
    "memory": (("memory",), ("profile_memory",)),
    "stacks": (("stacks",), ("with_stack",)),
    "shapes, memory, stacks": (("shapes", "memory", "stacks"), ("record_shapes", "profile_memory", "with_stack")),
}
_LABEL = "desc: Trigger: Client Request: "
_TIDYING = ("malloc_consolidate", "unlink_chunk")
_PROGRAMS = {"add": "a tiny add", "loop": "the policy loop"}


def measure(quick: bool) -> list[Result]:
    with tempfile.TemporaryDirectory() as directory:
        command = [
            "valgrind",
            "-q",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={directory}/counts",
        ]
        # Native parts are compiled before, at full speed.
        for prefix, last in (([], "build"), (command, "count")):
            program = [*prefix, sys.executable, "-m", __name__, last]
            subprocess.run(program, cwd=ROOT, check=True)
        counts = _counts(Path(directory))
    return [result for program in _PROGRAMS for result in _results(program, counts)]


def _counts(directory: Path) -> dict[str, int]:
    """The least of each label's counts: what happens once, now and then, is not in it."""
    counts: dict[str, int] = {}
    for file in directory.glob("counts.*"):
        lines = file.read_text(errors="replace").splitlines()
        labels = [line.removeprefix(_LABEL) for line in lines if line.startswith(_LABEL)]
        if labels:
            count = _instructions(lines)
            counts[labels[0]] = min(count, counts.get(labels[0], count))
    return counts


def _instructions(lines: list[str]) -> int:
    """All that were counted, less malloc's tidying up, which comes when it will and whoever is recording."""
    total = 0
    names: dict[str, str] = {}
    counted = called = False
    for line in lines:
        key, _, value = line.partition("=")
        if key in ("fn", "cfn"):
            number, _, name = value.partition(" ")  # the name is given once
            name = names.setdefault(number, name)
            counted = not name.startswith(_TIDYING) if key == "fn" else counted
        elif key == "calls":
            called = True
        elif line[:1] in ("*", "+", "-") or line[:1].isdigit():
            # The line after a call holds what the callee took, which stands with the callee too.
            total += int(line.split()[1]) if counted and not called else 0
            called = False
    return total


def _results(program: str, counts: dict[str, int]) -> list[Result]:
    from benchmarks.policy_loop import OPS_PER_STEP

    ops = OPS if program == "add" else OPS_PER_STEP

    def added(label: str) -> int:
        return round((counts[f"{program} {label}"] - counts[f"{program} bare"]) / ops)

    results = []
    for what in _OPTIONS:
        ours, theirs = added(f"torchreel {what}"), added(f"torch.profiler {what}")
        detail = f"{ours:,} against {theirs:,} instructions per op"
        name = f"{_PROGRAMS[program]}, {what}: added instructions, ratio"
        results.append(Result(name, Spread.of([ours / theirs]), detail=detail))
    ours, theirs = added("torchreel ops"), added("empty")
    detail = f"{ours:,} against {theirs:,} instructions per op"
    results.append(
        Result(f"{_PROGRAMS[program]}, ops against an empty callback, ratio", Spread.of([ours / theirs]), detail=detail)
    )
    return results


def _count() -> None:
    """Under valgrind: every program under every observer."""
    import torch

    from benchmarks.observers import EmptyCallback, Nothing, Observer, TorchProfiler, Torchreel
    from benchmarks.op_cost import run
    from benchmarks.policy_loop import PolicyLoop

    torch.set_num_threads(1)
    gc.disable()
    observers: dict[str, Observer] = {"bare": Nothing(), "empty": EmptyCallback()}
    for what, (ours, theirs) in _OPTIONS.items():
        observers[f"torchreel {what}"] = Torchreel(ours)
        observers[f"torch.profiler {what}"] = TorchProfiler(theirs)
    one, loop = torch.ones(1), PolicyLoop()
    for label, observer in observers.items():
        with torch.no_grad(), observer.watch():
            _count_one(f"add {label}", lambda: run(OPS, one, one))
        with observer.watch():
            _count_one(f"loop {label}", loop.step)


def _count_one(label: str, work: Callable[[], None]) -> None:
    from benchmarks.native import callgrind

    # The first time warms up, from the same line as the others: another would make new stacks.
    for repeat in range(1 + REPEATS):
        if repeat:
            callgrind().begin()
        work()
        if repeat:
            callgrind().end(label)


def _build() -> None:
    from benchmarks.native import callgrind, empty_callback

    callgrind()
    empty_callback()


if __name__ == "__main__":
    {"build": _build, "count": _count}[sys.argv[1]]()
