"""Programs of every kind that the tape is held to, through graphs: replayed or left to eager, never wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchreel
from tests.tape.outcome import called, put_back, start_of
from tests.tape.programs import PROGRAMS

_CALLS = 5


@pytest.mark.filterwarnings("ignore")  # what torch says of sparse, nested, quantized and scripted tensors
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_program(name: str) -> None:
    # GIVEN a program, and what it gives from its start on some inputs and on others
    torch.manual_seed(0)
    case = PROGRAMS[name]()
    start = start_of(case)
    batches = [case.inputs] if case.others is None else [case.inputs, case.others]
    expected = [called(case, start, case.function, batch) for batch in batches]

    # WHEN it is graphed, and called again and again
    graphed = torchreel.graphed(case.function)
    for call in range(_CALLS):
        place = call % len(batches)

        # THEN each call gives and changes the same
        assert called(case, start, graphed, batches[place]) == expected[place], f"call {call + 1}"
    put_back(case, start)


@pytest.mark.filterwarnings("ignore")
def test_most_programs_are_replayed() -> None:
    replayed: list[Any] = []
    for make in PROGRAMS.values():
        torch.manual_seed(0)
        case = make()
        start = start_of(case)
        graphed = torchreel.graphed(case.function)
        for _ in range(4):
            called(case, start, graphed, case.inputs)
        replayed.append(graphed.replays() > 0)
    assert sum(replayed) >= 30  # the others write, draw Python's numbers, start threads or call C that is not known
