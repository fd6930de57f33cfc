"""A replay after a change gives what the function gives, or says what has changed: never another result."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

import torchreel
from tests.tape.guards import hostile_state  # noqa: F401  (adds to the changes)
from tests.tape.guards.hostile_changes import CHANGES, REPLAYED, Change
from tests.tape.outcome import bits
from torchreel.errors import TapeError


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_there_are_changes_of_every_kind() -> None:
    assert len(CHANGES) >= 215


def last_call(case: Change, function: Any) -> list[Any]:
    """All that the third call gives and leaves, bit by bit."""
    case.change()
    with contextlib.ExitStack() as stack:
        if case.around is not None:
            stack.enter_context(case.around())
        args, kwargs = case.arguments(2), case.names(2)
        result = function(*args, **kwargs)
        values = [finished(result), case.state(), args, kwargs, torch.get_rng_state()]
        return tree_map(bits, values)


def finished(result: Any) -> Any:
    """What comes of a result that is computed later."""
    if isinstance(result, Iterator):
        return list(result)
    if isinstance(result, dict | tuple):
        return tree_map(finished, result, is_leaf=lambda part: isinstance(part, Iterator) or callable(part))
    if isinstance(result, types.FunctionType):
        return result() if not result.__code__.co_argcount else repr(result.__qualname__)
    return result


def expected(name: str) -> list[Any]:
    torch.manual_seed(0)
    case = CHANGES[name]()
    for call in range(2):
        case.function(*case.arguments(call), **case.names(call))
    return last_call(case, case.function)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHANGES)
def test_change(name: str) -> None:
    # GIVEN what the function gives at its third call
    try:
        wanted = expected(name)
    except Exception as error:
        wanted = [repr(error)]

    # WHEN its second call was traced
    torch.manual_seed(0)
    case = CHANGES[name]()
    case.function(*case.arguments(0), **case.names(0))
    try:
        tape = torchreel.trace(case.function, *case.arguments(1), **case.names(1))
        found = last_call(case, tape.replay)
    except TapeError as refusal:
        assert name not in REPLAYED, refusal
        assert str(refusal).endswith(".") and len(str(refusal)) > 40
        return

    # THEN the tape gives the same, if it gives anything
    assert found == wanted
