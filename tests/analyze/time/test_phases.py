"""Phases of steps, over trees of calls whose times can be added up by hand, and over a recorded run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import torchreel
from tests.analyze.gpu import by_hand
from tests.synthetic import START, Call, Process, call, write_reel
from torchreel.analyze.time.phases import PHASES, phases
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process


def load(tmp_path: Path, process: Process, *steps: tuple[int, int]) -> torchreel.Reel:
    """A reel with these steps, as nanoseconds since its beginning."""
    tables = process.tables()
    if steps:
        rows = [{"step": n, "start_ns": START + a, "end_ns": START + b} for n, (a, b) in enumerate(steps)]
        tables["steps"] = pa.Table.from_pylist(rows)
    path = tmp_path / "run.reel"
    write_process(path / process.name, tables)
    write_meta(path, {"root": process.name})
    return torchreel.load(path)


def spent(reel: torchreel.Reel) -> list[dict[str, Any]]:
    """The phases of each row that took any time; that they add up is asked each time."""
    rows = phases(reel).to_pylist()
    for row in rows:
        assert sum(row[f"{phase}_ns"] for phase in PHASES) == row["end_ns"] - row["start_ns"]
    return [
        {"step": row["step"], **{phase: row[f"{phase}_ns"] for phase in PHASES if row[f"{phase}_ns"]}} for row in rows
    ]


def one_step() -> list[Call]:
    """100 ns: each phase takes what its name's place in the list says, times ten."""
    return [
        call("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 4, call("aten::stack", 6), kind="range"),
        call("nn.Module: Net", 3, call("aten::linear", 17), kind="module"),
        call("autograd::engine::evaluate_function: AddmmBackward0", 10, call("AddmmBackward0", 20, kind="backward")),
        call("Optimizer.step#SGD.step", 20, call("aten::add_", 5), kind="range"),
        call("Optimizer.zero_grad#SGD.zero_grad", 15, kind="range"),
    ]


def test_a_step_is_told_apart_by_its_outermost_calls(tmp_path: Path) -> None:
    reel = load(tmp_path, Process({"MainThread": one_step()}), (0, 110))
    assert spent(reel) == [{"step": 0, "data": 10, "forward": 20, "backward": 30, "optimizer": 40, "no_op": 10}]


def test_ranges_of_the_user_and_python_calls_are_looked_into(tmp_path: Path) -> None:
    wrapped = call("epoch", 5, call("train.py(3): main", 7, *one_step(), kind="python"), kind="range")
    reel = load(tmp_path, Process({"MainThread": [wrapped]}), (0, 112))
    assert spent(reel) == [{"step": 0, "data": 10, "forward": 20, "backward": 30, "optimizer": 40, "no_op": 12}]


def test_a_call_that_goes_on_into_the_next_step_is_cut(tmp_path: Path) -> None:
    reel = load(tmp_path, Process({"MainThread": one_step()}), (0, 25), (25, 45), (45, 130))
    assert spent(reel) == [
        {"step": 0, "data": 10, "forward": 15},
        {"step": 1, "forward": 5, "backward": 15},
        {"step": 2, "backward": 15, "optimizer": 40, "no_op": 30},
    ]
    assert phases(reel)["whole"].to_pylist() == [False, True, False]


def test_without_steps_the_whole_recording_is_one_row(tmp_path: Path) -> None:
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"MainThread": one_step()})))
    assert spent(reel) == [{"step": None, "data": 10, "forward": 20, "backward": 30, "optimizer": 40}]
    assert phases(reel)["whole"].to_pylist() == [True]


def test_ops_that_autograd_differentiates_are_forward_without_modules(tmp_path: Path) -> None:
    process = Process({"MainThread": [call("aten::mm", 10), call("aten::mul", 5)]})
    tables = process.tables()
    ops = tables["ops"].append_column("seq", pa.array([7, None], pa.int64()))
    write_process(tmp_path / "run.reel" / process.name, {**tables, "ops": ops})
    write_meta(tmp_path / "run.reel", {"root": process.name})
    assert spent(torchreel.load(tmp_path / "run.reel")) == [{"step": None, "forward": 10, "other": 5}]


def test_other_threads_count_where_the_main_thread_has_nothing_open(tmp_path: Path) -> None:
    """Backward runs on threads of its own for a GPU; what runs beside the main thread is not counted twice."""
    process = Process(
        {
            "MainThread": [
                call("Optimizer.step#SGD.step", 30, kind="range"),
                call("idle", 100, kind="range"),
                call("aten::mm", 20),
            ],
            "pt_autograd_0": [
                call("aten::item", 10),
                call("MulBackward0", 40, kind="backward"),
                call("aten::add", 20),
                call("AddBackward0", 70, kind="backward"),
            ],
            "another": [call("aten::copy_", 60), call("PowBackward0", 15, kind="backward")],
        }
    )
    # Main: optimizer to 30, nothing to 130, other to 150. Backward of the others: 10 to 50, 60 to 75, 70 to 140.
    reel = load(tmp_path, process, (0, 150))
    assert spent(reel) == [{"step": 0, "backward": 20 + 70, "optimizer": 30, "other": 20 + 10}]


def test_many_threads_against_counting_each_nanosecond(tmp_path: Path) -> None:
    random = np.random.default_rng(20261117)
    names = [*((call.name, call.kind) for call in one_step()), ("aten::mul", "op"), ("mine", "range")]
    for number in range(30):
        threads: dict[str, list[Call]] = {}
        for thread in range(int(random.integers(1, 4))):
            chosen = random.integers(0, len(names), size=12)
            threads[f"thread {thread}"] = [
                call(names[which][0], int(random.integers(0, 20)), kind=names[which][1]) for which in chosen
            ]
        threads["thread 0"].append(call("Optimizer.step#A.step", 9, kind="range"))
        for name in list(threads)[1:]:
            threads[name] = [item for item in threads[name] if not item.name.startswith("Optimizer.step")]
        reel = load(tmp_path / str(number), Process(threads), (0, 100), (100, 260), (260, 300))
        assert spent(reel) == counted(threads, [(0, 100), (100, 260), (260, 300)])


def counted(threads: dict[str, list[Call]], steps: list[tuple[int, int]]) -> list[dict[str, Any]]:
    phase_of = {
        "enumerate": "data",
        "nn.Module": "forward",
        "autograd::": "backward",
        "Optimizer": "optimizer",
        "aten::": "other",
        "mine": None,
    }
    running: list[list[str | None]] = []
    for calls in threads.values():
        moments: list[str | None] = []
        for item in calls:
            phase = next(value for key, value in phase_of.items() if item.name.startswith(key))
            moments += [phase] * item.dur_ns
        running.append(moments + [None] * 400)
    found = []
    for number, (begin, end) in enumerate(steps):
        row: dict[str, int] = dict.fromkeys(PHASES, 0)
        for moment in range(begin, end):
            main, *others = (moments[moment] for moments in running)
            if main is None and any(others):
                main = "backward" if "backward" in others else "other"
            row[main or "no_op"] += 1
        found.append({"step": number, **{phase: ns for phase, ns in row.items() if ns}})
    return found


def test_an_empty_reel_has_no_rows(tmp_path: Path) -> None:
    assert phases(torchreel.load(write_reel(tmp_path / "empty.reel", Process({})))).num_rows == 0


@pytest.mark.programs
def test_a_recorded_training_run(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.randn(40, 64), batch_size=8)
    with torchreel.record(tmp_path / "run.reel", modules=True) as recorder:
        for batch in data:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            recorder.step()
    rows = phases(torchreel.load(tmp_path / "run.reel")).to_pylist()
    assert [row["step"] for row in rows] == list(range(6))
    for row in rows[:5]:
        assert all(row[f"{phase}_ns"] > 0 for phase in PHASES), row
        assert sum(row[f"{phase}_ns"] for phase in PHASES) == row["end_ns"] - row["start_ns"]


def test_a_trace_in_which_depth_is_no_level(tmp_path: Path) -> None:
    """Calls that end after the one around them stand open in between; Python alone makes no main thread."""
    ops = [
        by_hand.call(0, 100, "ProfilerStep#1", "op", depth=4, parent=1),
        by_hand.call(0, 120, "run", "python", depth=0),
        by_hand.call(10, 90, "train.py(3): main", "python", depth=1, parent=0),
        by_hand.call(20, 50, "aten::mm", "op", depth=2, parent=2),
        by_hand.call(0, 500, "monitor.py(60): run", "python", depth=0, thread=1),
    ]
    steps = [{"step": 1, "start_ns": START, "end_ns": START + 100}]
    reel = by_hand.reel_of(tmp_path / "run.reel", {"ops": ops, "steps": steps})
    assert spent(reel) == [{"step": 1, "other": 30, "no_op": 70}]
