"""How many bytes does an op take in a reel, against its Chrome trace and against the one that torch.profiler writes?"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import child
from benchmarks.result import Goal, Result, Spread, number

STEPS = 100
QUICK_STEPS = 5
ROUNDS = 3

_ALL = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")

RECORDINGS = {"plain": ("a plain recording", ()), "all": ("a recording with everything (--all)", _ALL)}


def measure(quick: bool) -> list[Result]:
    steps = str(QUICK_STEPS if quick else STEPS)
    results = []
    for recording, (what, _) in RECORDINGS.items():
        sizes = [child.call(__name__, recording, steps) for _ in range(1 if quick else ROUNDS)]
        results.extend(_results(what, sizes))
    return results


def _results(what: str, sizes: list[dict[str, int]]) -> list[Result]:
    reel = Spread.of([size["reel"] / size["ops"] for size in sizes]).median
    results = []
    for form, name, goal in (
        ("chrome", "its own Chrome JSON", Goal(1 / 30)),
        ("profiler", "torch.profiler's JSON of the same program", None),
    ):
        other = Spread.of([size[form] / size["ops"] for size in sizes]).median
        smaller = Spread.of([size["reel"] / size[form] for size in sizes])
        detail = f"{number(reel)} against {number(other)} bytes per op: 1/{number(1 / smaller.median)}"
        results.append(Result(f"{what} against {name}, ratio", smaller, goal, "", detail))
    return results


def _main(recording: str, steps: int) -> None:
    """Both recordings of one program, in a fresh interpreter."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    import torchreel
    from benchmarks.policy_loop import run
    from torchreel.export import export
    from torchreel.record import Recorder, RecordOptions

    torch.set_num_threads(1)
    run(2)
    _, theirs = RECORDINGS[recording]
    options = RecordOptions.everything() if recording == "all" else RecordOptions()
    sizes: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        path, trace = Path(directory, "run.reel"), Path(directory, "trace.json")
        with Recorder(path, options):
            run(steps)
        reel = torchreel.load(path)
        sizes["ops"] = reel.sql("select count(*) as n from ops where kind <> 'module'")["n"][0].as_py()
        sizes["reel"] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        export(reel, trace, "chrome")
        sizes["chrome"] = trace.stat().st_size
        with profile(activities=[ProfilerActivity.CPU], **dict.fromkeys(theirs, True)) as profiler:
            run(steps)
        profiler.export_chrome_trace(str(trace))
        sizes["profiler"] = trace.stat().st_size
    print(json.dumps(sizes))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
