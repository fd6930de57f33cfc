"""How long after a recording is its table of averages there, and what memory did it take, against torch.profiler?

Each side runs in a fresh interpreter, by turns: `python -m benchmarks.post_processing SIDE STEPS`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import child
from benchmarks.result import Goal, Result, Spread, number
from benchmarks.rounds import in_words

OPS = 1_000_000
QUICK_OPS = 100_000
ROUNDS = 2  # torch.profiler takes more than a minute


def measure(quick: bool) -> list[Result]:
    from benchmarks.policy_loop import OPS_PER_STEP

    steps = str((QUICK_OPS if quick else OPS) // OPS_PER_STEP + 1)
    ours, theirs = [], []
    for _ in range(1 if quick else ROUNDS):
        ours.append(child.call(__name__, "torchreel", steps))
        theirs.append(child.call(__name__, "torch.profiler", steps))
    faster = [other["total"] / mine["total"] for mine, other in zip(ours, theirs, strict=True)]
    memory = [mine["growth"] / other["growth"] for mine, other in zip(ours, theirs, strict=True)]
    seconds = f"{_parts(ours)} against {_parts(theirs)}"
    growth = f"{_megabytes(ours)} against {_megabytes(theirs)}"
    return [
        Result(f"{number(ours[0]['ops'])} ops: times faster", Spread.of(faster), Goal(100, at_least=True), "", seconds),
        Result("peak memory, ratio", Spread.of(memory), Goal(0.10), "", growth),
    ]


def _parts(runs: list[dict[str, Any]]) -> str:
    parts = [f"{part} {number(Spread.of([run['parts'][part] for run in runs]).median)}" for part in runs[0]["parts"]]
    return f"{in_words(Spread.of([run['total'] for run in runs]), 's')} ({', '.join(parts)})"


def _megabytes(runs: list[dict[str, Any]]) -> str:
    return in_words(Spread.of([run["growth"] / 1e6 for run in runs]), "MB")


class _Clock:
    """CPU seconds of the whole process, part by part, and the most memory that it held until the end of the last."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.peak = 0

    def time(self, part: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        value = work()
        self.parts[part] = time.process_time() - start
        self.peak = child.peak_bytes()
        return value


def _torchreel(steps: int, clock: _Clock) -> int:
    import torchreel
    from benchmarks.policy_loop import run
    from torchreel.analyze import averages

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "run.reel")
        recorder = torchreel.Recorder(path)
        recorder.start()
        run(steps)
        clock.time("stop and save", recorder.stop)
        reel = clock.time("load", lambda: torchreel.load(path))
        clock.time("averages", lambda: averages(reel))
        return int(reel.table("ops", ["id"]).num_rows)


def _torch_profiler(steps: int, clock: _Clock) -> int:
    from torch.profiler import ProfilerActivity, profile

    from benchmarks.policy_loop import run

    profiler = profile(activities=[ProfilerActivity.CPU])
    profiler.start()
    run(steps)
    clock.time("stop", profiler.stop)
    events = clock.time("events", profiler.events)
    clock.time("key_averages", profiler.key_averages)
    return len(events)


SIDES = {"torchreel": _torchreel, "torch.profiler": _torch_profiler}


def _main(side: str, steps: int) -> None:
    import torch

    from benchmarks.policy_loop import run

    torch.set_num_threads(1)
    run(2)
    child.forget_peak()
    before = child.resident_bytes()
    clock = _Clock()
    ops = SIDES[side](steps, clock)
    total = sum(clock.parts.values())
    print(json.dumps({"ops": ops, "parts": clock.parts, "total": total, "growth": clock.peak - before}))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
