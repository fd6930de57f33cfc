"""Steps: recorded ones, or what recurs like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analyze.memory.conftest import Programs
from tests.analyze.memory.traces import EPOCH, Trace, user


def trace_of(count: int, name: str = "", table: bool = False) -> Trace:
    trace = Trace()
    for step in range(count):
        if name:
            trace.annotate(name, "START")
        trace.alloc(4096 * step, 8, user(1))
        if name:
            trace.annotate(name, "END")
        if table:
            time = EPOCH + 1000 * step
            trace.add("steps", step=step + 5, start_ns=time, end_ns=time + 1000)
    trace.alloc(1 << 30, 8, user(1))
    return trace


def test_recorded_steps_keep_their_numbers(tmp_path: Path) -> None:
    steps = trace_of(5, table=True).memory(tmp_path).steps
    assert (steps.ends.tolist(), steps.first, steps.source) == ([1, 2, 3, 4], 5, "")
    assert [steps.number(event) for event in range(6)] == [5, 6, 7, 8, 9, 9]


@pytest.mark.parametrize("name", ["Optimizer.step#SGD.step", "train step", "Iteration", "batch"])
def test_annotations_that_recur(tmp_path: Path, name: str) -> None:
    steps = trace_of(4, name).memory(tmp_path).steps
    assert (steps.ends.tolist(), steps.source) == ([1, 2, 3, 4], f"ends of {name}")


@pytest.mark.parametrize("name", ["forward", "Optimizer.zero_grad#SGD.zero_grad"])
def test_annotations_that_are_no_steps(tmp_path: Path, name: str) -> None:
    assert len(trace_of(4, name).memory(tmp_path).steps) == 0


def test_calls_of_a_module_that_is_called_again_and_again(programs: Programs) -> None:
    steps = programs.memory("hidden_state").steps
    assert (len(steps), steps.source) == (12, "calls of LSTM")


def test_no_steps(tmp_path: Path) -> None:
    steps = trace_of(2, "train step").memory(tmp_path).steps
    assert (len(steps), steps.number(0)) == (0, None)
