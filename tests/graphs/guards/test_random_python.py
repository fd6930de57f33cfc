"""Random programs of Python, each call held to eager: replayed or left to eager, never wrong."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.graphs.guards.lockstep import CALL, held_to_eager
from tests.graphs.guards.random_python import case_of, program_of

pytestmark = pytest.mark.filterwarnings("ignore")  # what torch says of steps without gradients

_CHUNK = 25


def held(seed: int) -> None:
    program = program_of(seed)
    try:
        held_to_eager(functools.partial(case_of, program), list(program.steps), hold=seed % 3 == 0, verify=0)
    except AssertionError as error:
        pytest.fail(f"{error}\n\n{program}", pytrace=False)


@pytest.mark.parametrize("chunk", range(2))
def test_programs(chunk: int) -> None:
    for seed in range(chunk * _CHUNK, (chunk + 1) * _CHUNK):
        held(seed)


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(2, 132))
def test_many_programs(chunk: int) -> None:
    for seed in range(chunk * _CHUNK, (chunk + 1) * _CHUNK):
        held(seed)


def test_a_seed_is_always_the_same_program() -> None:
    assert all(str(program_of(seed)) == str(program_of(seed)) for seed in range(20))


def test_programs_that_change_nothing_are_replayed() -> None:
    replayed = 0
    for seed in range(20):
        program = program_of(seed, writes=False, changes=False)
        # Some programs have six kinds of arguments in turn, and each kind is recorded by itself.
        run: Any = held_to_eager(functools.partial(case_of, program), [CALL] * 16, verify=0)
        replayed += run.function.replays() > 0
    assert replayed >= 10
