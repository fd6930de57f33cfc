"""How long does `torchreel report` take on a recording of ten million ops, and how much memory?"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import child
from benchmarks.result import Goal, Result, Spread, number

OPS = 10_000_000
QUICK_OPS = 200_000
ROUNDS = 5


def measure(quick: bool) -> list[Result]:
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "run.reel"))
        made = child.call(__name__, path, str(QUICK_OPS if quick else OPS))
        command = [sys.executable, "-m", "torchreel", "report", path]
        runs = [child.usage_of(command) for _ in range(1 if quick else ROUNDS)]
    ops = f"{number(made['ops'])} ops, recorded in {number(made['seconds'])} s"
    wall = Spread.of([run.wall_s for run in runs])
    cpu = Spread.of([run.cpu_s for run in runs])
    peak = Spread.of([run.peak_bytes / 1e9 for run in runs])
    return [
        Result("torchreel report: wall clock", wall, Goal(5), "s", ops),
        Result("torchreel report: CPU", cpu, Goal(5), "s", "on all cores"),
        Result("torchreel report: peak memory", peak, Goal(2), "GB"),
    ]


def _main(path: str, ops: int) -> None:
    """Record so many ops of the policy loop, really."""
    import torch

    import torchreel
    from benchmarks.policy_loop import OPS_PER_STEP, run

    torch.set_num_threads(1)
    start = time.perf_counter()
    with torchreel.Recorder(path):
        run(ops // OPS_PER_STEP + 1)
    seconds = time.perf_counter() - start
    count = torchreel.load(path).sql("select count(*) as n from ops")["n"][0].as_py()
    print(json.dumps({"ops": count, "seconds": seconds}))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
