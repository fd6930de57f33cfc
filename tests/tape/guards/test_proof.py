"""The call of a traced function is followed: a replay does what a call would, or says why it does not.

Each program is called, traced, changed and replayed three times beside a twin that is only called.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import torchreel
from tests.tape.guards.followed_programs import (
    PROGRAMS,
    REPLAYED,
    Program,
    Rate,
    called,
    described,
    inputs,
    noted,
    the_time,
)
from tests.tape.outcome import bits
from torchreel.errors import ReplayError


def run(make: Callable[[], Program], traced: bool) -> Iterator[Any]:
    torch.manual_seed(0)
    made, given = make(), inputs()
    for _ in range(made.warm):
        made.function(next(given))
    if traced:
        tape = torchreel.trace(made.function, next(given))
    else:
        made.function(next(given))
    for call in range(3):
        made.change(call)
        yield described(tape.replay(next(given)) if traced else made.function(next(given))), described(made.state())


@pytest.mark.filterwarnings("ignore:Nobody can tell")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_replay_is_a_call_or_says_why_not(name: str) -> None:
    called, replays = run(PROGRAMS[name], False), run(PROGRAMS[name], True)
    for call in range(3):
        expected = next(called)
        try:
            found = next(replays)
        except ReplayError:  # a GuardError is one
            assert name not in REPLAYED
            return
        assert found == expected, f"replay {call}"


def test_what_is_not_known_is_said_once() -> None:
    tape = torchreel.trace(the_time().function, torch.ones(3))
    with pytest.warns(
        UserWarning, match=r"Nobody can tell .* calls time.monotonic\(\), which is not known .*trust=True"
    ):
        tape.replay(torch.ones(3))
    tape.replay(torch.ones(3))


@pytest.mark.filterwarnings("error")
def test_trust() -> None:
    tape = torchreel.trace(the_time().function, torch.ones(3), trust=True)
    assert bits(tape.replay(torch.full((3,), 2.0))) == bits(torch.full((3,), 2.0))


def test_the_sentence_names_what_changed() -> None:
    rate = Rate()
    tape = torchreel.trace(lambda x: x * [rate][0].value, torch.ones(3))
    rate.value = 7.0
    with pytest.raises(ReplayError, match=r"rate.value was 1.0 .* is 7.0"):
        tape.replay(torch.ones(3))


@dataclass
class Collected:
    phases: list[str] = field(default_factory=list)

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        self.phases.append(phase)
        time.perf_counter()


def test_the_collector_is_no_part_of_a_call() -> None:
    """Its callbacks run whenever there is much to collect, in whichever function that is."""
    seen = Collected()

    def function(x: torch.Tensor) -> torch.Tensor:
        made = [[number] for number in range(5000)]  # which calls for a collection
        return x * len(made)

    gc.callbacks.append(seen)
    try:
        fast = torchreel.graphed(function)
        for _ in range(4):
            fast(torch.ones(3))
        tape = torchreel.trace(function, torch.ones(3))
    finally:
        gc.callbacks.remove(seen)
    assert seen.phases  # in the calls that are not followed
    assert torchreel.graphs.status(fast).replays == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tape.replay(torch.ones(3))
    assert gc.isenabled()


def test_flags_of_new_tensors() -> None:
    held: dict[str, Any] = {}

    def function(x: torch.Tensor) -> Any:
        leaf = (x * 2).detach().requires_grad_()
        with torch.inference_mode():
            frozen = x * 3
        held["both"] = (leaf, frozen)
        return (x * 4).detach().requires_grad_(), frozen

    function(torch.ones(3))
    tape = torchreel.trace(function, torch.ones(3))
    for leaf, frozen in (tape.replay(torch.full((3,), 2.0)), held["both"]):
        assert leaf.requires_grad and leaf.is_leaf and not leaf.is_inference()
        assert frozen.is_inference() and bits(frozen) == bits(torch.full((3,), 6.0))


def test_an_op_of_one_s_own_does_what_it_does_once() -> None:
    tape = torchreel.trace(lambda x: noted(x) + 1, torch.ones(3))
    called.clear()
    assert bits(tape.replay(torch.zeros(3))) == bits(torch.ones(3))
    assert called == ["called"]


def test_a_scripted_module() -> None:
    scripted = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(2))
    tape = torchreel.trace(lambda x: scripted(x).detach(), torch.ones(2))
    with pytest.warns(UserWarning, match="Nobody can tell"):
        assert bits(tape.replay(torch.zeros(2))) == bits(scripted(torch.zeros(2)).detach())
