"""Programs of every kind, traced and replayed, bit for bit as eager torch runs them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchreel
from tests.tape.outcome import called, copied, outcome, put_back, start_of
from tests.tape.programs import PROGRAMS


def test_there_are_programs_of_every_kind() -> None:
    assert len(PROGRAMS) >= 65


@pytest.mark.filterwarnings("ignore")  # what torch says of sparse, nested, quantized and scripted tensors
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    # GIVEN a program, and what it gives
    torch.manual_seed(0)
    case = PROGRAMS[name]()
    start = start_of(case)
    expected = called(case, start, case.function, case.inputs)

    # WHEN it is traced
    put_back(case, start)
    given = copied(case.inputs)
    results = []

    def function(*inputs: Any) -> Any:
        results.append(case.function(*inputs))
        return results[-1]

    tape = torchreel.trace(function, *given)
    assert outcome(case, results.pop(), given) == expected

    # THEN a replay gives and changes the same, again and again
    for _ in range(2):
        assert called(case, start, tape.replay, case.inputs) == expected

    # ... and on other inputs what the function gives for those
    if case.others is not None:
        expected = called(case, start, case.function, case.others)
        assert called(case, start, tape.replay, case.others) == expected
