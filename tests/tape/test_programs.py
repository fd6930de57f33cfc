"""Programs of every kind, traced and replayed, bit for bit as eager torch runs them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchreel
from tests.tape.outcome import called, copied, outcome, put_back, start_of
from tests.tape.programs import PROGRAMS
from torchreel.errors import ReplayError

# What is wrong, and where: each of these goes when it is mended.
WRONG = {
    "custom_op_with_autograd": "NumPy within the kernel of an op is taken for the function's own use of it",
    "resized_state": "a tensor of the state that is resized twice is resized once",
    "constant_written": "what torch.tensor() made is not kept before it is written",
}
# Programs that a tape does not hold, and what it says.
REFUSED = {"numpy_made_and_written": "made without an op, and what it held before is not known"}


def marked() -> list[Any]:
    return [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=WRONG[name]) if name in WRONG else ())
        for name in PROGRAMS
        if name not in REFUSED
    ]


def test_most_programs_are_held() -> None:
    assert len(PROGRAMS) - len(REFUSED) - len(WRONG) >= 60
    assert WRONG.keys() | REFUSED.keys() <= PROGRAMS.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_refused_program(name: str) -> None:
    case = PROGRAMS[name]()
    tape = torchreel.trace(case.function, *copied(case.inputs))
    with pytest.raises(ReplayError, match=REFUSED[name]):
        tape.replay(*copied(case.inputs))


@pytest.mark.filterwarnings("ignore")  # what torch says of sparse, nested, quantized and scripted tensors
@pytest.mark.parametrize("name", marked())
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
