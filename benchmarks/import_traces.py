"""What does it cost to make a finished reel of a GPU trace, against the parser of HolisticTraceAnalysis alone?

Each side runs in a fresh interpreter, by turns: `python -m benchmarks.import_traces SIDE FILE`. TORCHREEL_HTA names a
Python that has HolisticTraceAnalysis, TORCHREEL_TRACES the directory of the traces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import child
from benchmarks.result import Goal, Result, Spread, number
from benchmarks.rounds import in_words

TRACES = ("mi300_sd35.json.gz", "h100_owlv2.json.gz", "a100_rank3of8_training.json.gz")
ROUNDS = 5
_BESIDE = child.ROOT.parent / "shared" / "data" / "traces"

_HTA = """
import json, sys, time
from hta.configs.parser_config import ParserConfig
from hta.common.trace_parser import parse_trace_dataframe
start = time.process_time()
parse_trace_dataframe(sys.argv[1], ParserConfig.get_default_cfg())
print(json.dumps({"cpu": time.process_time() - start}))
"""


def measure(quick: bool) -> list[Result]:
    directory = Path(os.environ.get("TORCHREEL_TRACES", _BESIDE))
    other = os.environ.get("TORCHREEL_HTA")
    if other is None:
        raise SystemExit("TORCHREEL_HTA names no Python that has HolisticTraceAnalysis: install it there, and name it.")
    return [_compared(directory / name, other, 1 if quick else ROUNDS) for name in TRACES]


def _compared(path: Path, python: str, rounds: int) -> Result:
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(child.call(__name__, "torchreel", str(path)))
        theirs.append(_hta(python, path)["cpu"])
    shares = [mine["cpu"] / other for mine, other in zip(ours, theirs, strict=True)]
    seconds = f"{in_words(Spread.of([mine['cpu'] for mine in ours]), 's')} against {in_words(Spread.of(theirs), 's')}"
    size = f"{number(ours[0]['events'])} events, the reel {ours[0]['reel'] / ours[0]['json']:.3f} of the JSON's bytes"
    what = f"{path.name.split('.')[0]}: CPU time, ratio"
    return Result(what, Spread.of(shares), Goal(0.35), "", f"{seconds}; {size}")


def _hta(python: str, path: Path) -> Any:
    done = subprocess.run([python, "-c", _HTA, str(path)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _torchreel(path: Path) -> dict[str, Any]:
    import pyarrow as pa

    from torchreel.ingest import import_traces
    from torchreel.ingest.kineto.unpacking import Unpacking, opened

    with tempfile.TemporaryDirectory() as directory:
        reel = Path(directory, "gpu.reel")
        pa.array([0])  # imports pandas, if that is installed
        start = time.process_time()
        (trace,) = import_traces([path], reel)
        seconds = time.process_time() - start
        size = sum(file.stat().st_size for file in reel.rglob("*") if file.is_file())
    with opened(path) as (file, length):
        unpacked = sum(map(len, Unpacking(file, length).blocks()))
    return {"cpu": seconds, "events": trace.events, "reel": size, "json": unpacked}


if __name__ == "__main__":
    print(json.dumps(_torchreel(Path(sys.argv[2]))))
