"""Leaks: found with their line in programs that have them, and nothing in healthy ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analyze.memory import programs as memory_programs
from tests.analyze.memory.conftest import Programs
from tests.analyze.memory.programs import HEALTHY, LEAKING
from tests.analyze.memory.traces import Trace, user
from torchreel.analyze.memory.leaks import leaks

SOURCE = Path(memory_programs.__file__).read_text().splitlines()


def marked_lines(program: str) -> set[int]:
    """The lines of a program that end with the comment `leaks`."""
    first = next(n for n, text in enumerate(SOURCE) if text.startswith(f"def {program}("))
    last = next((n for n in range(first + 1, len(SOURCE)) if SOURCE[n].startswith(("def ", "HEALTHY"))), len(SOURCE))
    return {n + 1 for n in range(first, last) if SOURCE[n].endswith("# leaks")}


@pytest.mark.parametrize("name", [program.__name__ for program in HEALTHY])
def test_a_healthy_loop_has_none(programs: Programs, name: str) -> None:
    found = leaks(programs.memory(name))
    assert (found.verdict, found.growing.to_pylist()) == ("none", [])


@pytest.mark.parametrize("name", [program.__name__ for program in LEAKING])
def test_a_leak_is_found_with_its_line(programs: Programs, name: str) -> None:
    found = leaks(programs.memory(name))
    assert found.verdict == "found"
    lines = {int(row["name"].partition(".py:")[2].split()[0]) for row in found.growing.to_pylist()}
    assert lines and lines <= marked_lines(name)


def test_pain_41486_an_lstm_that_leaks_on_the_cpu(programs: Programs) -> None:
    # GIVEN a state that is carried over with its graph, in a loop that has neither an optimizer nor steps
    found = leaks(programs.memory("hidden_state"))
    # THEN calls of the module are its steps, and what grows is known to hang on a graph
    assert (found.steps, found.source) == (10, "calls of LSTM")
    (row,) = found.growing.to_pylist()
    assert (row["category"], row["graph"], row["one_block"]) == ("activation", True, False)
    assert row["blocks_per_step"] == 7


def test_bytes_and_blocks_of_each_step(programs: Programs) -> None:
    (row,) = leaks(programs.memory("cache")).growing.to_pylist()
    assert (row["bytes_per_step"], row["blocks_per_step"]) == (8192 * 4, 1)
    assert (row["bytes"], row["blocks"], row["graph"]) == (12 * 8192 * 4, 12, False)
    (row,) = leaks(programs.memory("grown_by_cat")).growing.to_pylist()
    assert (row["bytes_per_step"], row["one_block"], row["blocks"]) == (1024 * 4, True, 1)


def stepping(steps: int, held: list[int] | None = None) -> Trace:
    """A snapshot in which `held[n]` blocks of a line live at the end of step n, and one step is annotated."""
    trace, living = Trace(), 0
    for step in range(steps):
        trace.annotate("Optimizer.step#Adam.step", "START")
        wanted = held[step] if held else step + 1
        while living < wanted:
            trace.alloc(4096 * living, 1000, user(7, "keep"))
            living += 1
        while living > wanted:
            living -= 1
            trace.free(4096 * living, 1000)
        trace.alloc(1 << 30, 5, user(8))
        trace.free(1 << 30, 5)
        trace.annotate("Optimizer.step#Adam.step", "END")
    trace.alloc(1 << 30, 5, user(8))
    return trace


def test_steps_of_a_snapshot_are_its_annotations(tmp_path: Path) -> None:
    found = leaks(stepping(12).memory(tmp_path))
    assert (found.verdict, found.source) == ("found", "ends of Optimizer.step#Adam.step")
    (row,) = found.growing.to_pylist()
    assert (row["name"], row["bytes_per_step"], row["blocks_per_step"]) == ("user/train.py:7 keep", 1000, 1)


def test_one_step_in_ten_may_rest(tmp_path: Path) -> None:
    found = leaks(stepping(22, [n - n // 10 for n in range(1, 23)]).memory(tmp_path))
    assert found.verdict == "found"


@pytest.mark.parametrize(
    "held",
    [
        [5, 9, 1, 7, 3, 8, 2, 9, 4, 6, 5, 9],
        [1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8],
        [1, 1, 1, 5, 1, 1, 1, 9, 1, 1, 1, 12],
        [12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1],
        [9] * 12,
    ],
    ids=["up and down", "fills once", "now and then", "shrinks", "level"],
)
def test_what_is_no_leak(tmp_path: Path, held: list[int]) -> None:
    assert leaks(stepping(12, held).memory(tmp_path)).verdict == "none"


def test_too_few_steps_and_none(tmp_path: Path) -> None:
    assert leaks(stepping(4).memory(tmp_path / "a")).verdict == "too few steps"
    trace = Trace()
    trace.alloc(0, 8, user(1))
    assert leaks(trace.memory(tmp_path / "b")).verdict == "no steps"


def test_many_steps_are_sampled(tmp_path: Path) -> None:
    found = leaks(stepping(1500).memory(tmp_path))
    (row,) = found.growing.to_pylist()
    assert (found.steps, row["bytes_per_step"], row["blocks"]) == (1498, 1000, 1500)
