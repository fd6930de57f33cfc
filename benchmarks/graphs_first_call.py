"""How long does it take until a function is fast, from nothing?"""

from __future__ import annotations

import compileall
import itertools
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks import child
from benchmarks.result import Goal, Result, Spread, number
from benchmarks.rounds import in_words

if TYPE_CHECKING:
    from benchmarks.graphs_workloads import Program

ROUNDS = 7
COMPILED_ROUNDS = 2  # each takes up to half a minute

QUICK_WORKLOADS = ("MLP 3x64",)
COMPILED = "compile"
GRAPHED = "graphed"


def measure(quick: bool) -> list[Result]:
    from benchmarks.graphs_workloads import WORKLOADS

    # As an installer does: where Python may not write, it would compile our sources at each import.
    compileall.compile_dir(child.ROOT / "src" / "torchreel", quiet=1)
    results = []
    for name, workload in WORKLOADS.items():
        if not workload.compiled or (quick and name not in QUICK_WORKLOADS):
            continue
        ours = [_fresh(name, GRAPHED) for _ in range(1 if quick else ROUNDS)]
        theirs = [_fresh(name, COMPILED) for _ in range(1 if quick else COMPILED_ROUNDS)]
        results += _results(name, Goal(workload.first_call_ms), ours, theirs)
    return results


def _fresh(name: str, variant: str) -> dict[str, Any]:
    """In an interpreter that has only imported torch and run the function once, with empty caches on disk."""
    with tempfile.TemporaryDirectory() as caches, _environment(TORCHINDUCTOR_CACHE_DIR=caches):
        answer: dict[str, Any] = child.call(__name__, name, variant)
    return answer


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _results(name: str, goal: Goal, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[Result]:
    what = f"{name}: CPU time until it is fast"
    compiled = f"torch.compile {in_words(Spread.of([run['total_ms'] / 1e3 for run in theirs]), 's')}"
    failed = [run["failed"] for run in ours if run["failed"]]
    if failed:
        return [Result(what, None, goal, "ms", f"{failed[0]}; {compiled}")]
    parts = {part: Spread.of([run[part] for run in ours]).median for part in ours[0] if part.endswith("_ms")}
    first, second, eager = (number(parts[part]) for part in ("first_ms", "second_ms", "eager_ms"))
    detail = f"first call {first}, second {second}; an eager call {eager}"
    return [
        Result(what, Spread.of([run["total_ms"] - run["import_ms"] for run in ours]), goal, "ms", detail),
        Result(f"{name}: with the import", Spread.of([run["total_ms"] for run in ours]), None, "ms", compiled),
    ]


def _cpu_ms() -> float:
    """Of this process with all its threads, and of the compilers that it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() * 1e3 + (children.ru_utime + children.ru_stime) * 1e3


def _main(name: str, variant: str) -> None:
    """Time what is between having a function that works and having it fast."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # workers that outlive the compilation would not be counted
    import torch

    from benchmarks.graphs_workloads import WORKLOADS

    torch.set_num_threads(1)
    program = WORKLOADS[name].make()
    try:
        with torch.inference_mode(program.inference):
            answer = _timed(program, variant)
    except Exception as error:
        answer = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer))


def _timed(program: Program, variant: str) -> dict[str, Any]:
    program.function(*program.inputs)  # what torch does once in a process is not ours
    marks = [_cpu_ms()]
    program.function(*program.inputs)
    marks.append(_cpu_ms())
    fast = _wrapped(program, variant)
    marks.append(_cpu_ms())
    for _ in range(1 if variant == COMPILED else 2):
        fast(*program.inputs)
        marks.append(_cpu_ms())
    spans = [later - earlier for earlier, later in itertools.pairwise(marks)]
    parts = dict(zip(("eager_ms", "import_ms", "first_ms", "second_ms"), spans, strict=False))
    return {**parts, "total_ms": sum(spans[1:]), "failed": ""}


def _wrapped(program: Program, variant: str) -> Any:
    if variant == COMPILED:
        import torch

        return torch.compile(program.function)
    import torchreel

    return torchreel.graphed(program.function)


if __name__ == "__main__":
    _main(*sys.argv[1:])
