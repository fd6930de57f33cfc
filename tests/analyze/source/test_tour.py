"""The order in which a run entered files: against the definition, call by call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import torchreel
from tests.analyze.source.test_line_ops import hostile
from tests.analyze.source.test_lines import EINOPS, LINEAR, MODEL, TRAIN
from tests.analyze.source.test_regions import random_calls
from tests.synthetic import START, Call, Process, call, write_reel
from torchreel.analyze.source.tour import tour
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process

FORWARD = ("/home/me/model.py", 9, "Net.forward")
INIT = ("/home/me/model.py", 2, "Net.__init__")


def stop(file: str, first_ns: int, *functions: tuple[str, int], process: int = 0) -> dict[str, Any]:
    entered = [{"function": function, "line": line} for function, line in functions]
    return {"file": file, "process": process, "first_ns": first_ns, "functions": entered}


def test_files_and_functions_in_the_order_of_the_run(tmp_path: Path) -> None:
    calls = [
        call("aten::empty", 5, stack=(INIT, TRAIN)),
        call("aten::ones", 1_000),
        call("aten::mm", 30, stack=(LINEAR, FORWARD, ("/home/me/train.py", 12, "main"))),
        call("aten::mm", 30, stack=(EINOPS, MODEL, TRAIN)),
        call("MmBackward0", 3, kind="backward", stack=(LINEAR, FORWARD, TRAIN)),
    ]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    assert tour(reel).to_pylist() == [
        stop(TRAIN[0], 0, ("main", 10)),
        stop(INIT[0], 0, ("Net.__init__", 2), ("Net.forward", 9)),
        stop(LINEAR[0], 1_005, ("Linear.forward", 134)),
        stop(EINOPS[0], 1_035, ("rearrange", 9)),
    ]


def test_the_first_rank_comes_first(tmp_path: Path) -> None:
    worker = Process({"main": [call("aten::mm", 1, stack=(EINOPS, TRAIN))]}, name="host-1", pid=1)
    second = Process({"main": [call("aten::mm", 1, stack=(LINEAR, INIT))]}, name="host-2", pid=2, rank=1)
    first = Process(
        {"main": [call("aten::mm", 9), call("aten::mm", 1, stack=(FORWARD, TRAIN))]}, name="host-3", pid=3, rank=0
    )
    reel = torchreel.load(write_reel(tmp_path / "run.reel", worker, second, first))
    assert tour(reel).to_pylist() == [
        stop(TRAIN[0], 9, ("main", 10), process=2),
        stop(FORWARD[0], 9, ("Net.forward", 9), ("Net.__init__", 2), process=2),
        stop(LINEAR[0], 0, ("Linear.forward", 134), process=1),
        stop(EINOPS[0], 0, ("rearrange", 9), process=0),
    ]


def timed(calls: list[Call], start: int) -> list[tuple[int, Call]]:
    """Each call with its beginning, in the order of the ids."""
    found = []
    for item in calls:
        found.append((start, item))
        # As the synthetic reel has it: a call begins where the call before it ended, the first with its parent.
        found += timed(list(item.children), start)
        start += item.dur_ns
    return found


@pytest.mark.parametrize("seed", range(5))
def test_against_the_definition_call_by_call(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    processes = [
        Process({"main": random_calls(random, 3)}, name=f"host-{pid}", pid=pid, rank=rank)
        for pid, rank in ((1, None), (2, 1), (3, 0))
    ]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", *processes))
    wanted: dict[str, dict[str, Any]] = {}
    for index in (2, 1, 0):
        calls = timed(list(processes[index].threads["main"]), START)
        for start, item in sorted(calls, key=lambda one: one[0]):
            for file, line, function in reversed(item.stack or ()):
                file_stop = wanted.setdefault(file, stop(file, start - START, process=index))
                if all(each["function"] != function for each in file_stop["functions"]):
                    file_stop["functions"].append({"function": function, "line": line})
    assert tour(reel).to_pylist() == list(wanted.values())


@pytest.mark.parametrize("calls", [[], [call("aten::mm", 5)]], ids=["no ops", "no stacks"])
def test_without_stacks_no_file_was_seen(tmp_path: Path, calls: list[Call]) -> None:
    found = tour(torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls}))))
    assert (found.num_rows, found.column_names) == (0, ["file", "process", "first_ns", "functions"])


def test_a_hostile_reel(tmp_path: Path) -> None:
    markup = "<script>alert(1)</script>.py"
    assert tour(hostile(tmp_path / "run.reel")).to_pylist() == [stop(markup, 1, ("<b>", -7))]


def test_times_that_no_number_holds(tmp_path: Path) -> None:
    path = tmp_path / "run.reel"
    path.mkdir()
    ops = [{"id": n, "start_ns": start, "stack": 0} for n, start in enumerate([-(1 << 63), (1 << 63) - 1])]
    tables = {
        "ops": [ops[0], {**ops[1], "stack": 1}],
        "frames": [{"id": n, "file": f"{n}.py", "line": 1, "function": "f"} for n in range(2)],
        "stacks": [{"id": n, "frames": [n]} for n in range(2)],
        "processes": [{"name": "host-1", "complete": True}],
    }
    write_process(path / "host-1", {name: pa.Table.from_pylist(rows) for name, rows in tables.items()})
    write_meta(path, {"root": "host-1"})
    with pytest.raises(torchreel.errors.CorruptReelError, match="restore it from a copy"):
        tour(torchreel.load(path))
