"""Programs at holes that the rules once had."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest
import torch

import torchreel
from tests.guards.lockstep import told
from tests.guards.programs_found import PROGRAMS

_CALLS, _CHANGED_AT = 7, 5


def _run(make: Callable[[], dict[str, Any]], wrap: Callable[[Any], Any]) -> list[Any]:
    program = make()
    function = wrap(program["f"])
    arg = program.get("arg", lambda: (torch.ones(2),))
    show = program.get("show", lambda result, _: result)
    call = program.get("call", lambda function, args: function(*args))
    seen: list[Any] = []
    for turn in range(_CALLS):
        if turn == _CHANGED_AT and "change" in program:
            program["change"]()
        args = arg()
        try:
            seen.append(told(show(call(function, args), args)))
        except Exception as error:
            seen.append((type(error).__name__, str(error)))
        del args
    program.get("close", lambda: None)()
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    expected = copy_context().run(_run, PROGRAMS[name], lambda function: function)
    assert copy_context().run(_run, PROGRAMS[name], torchreel.graphed) == expected
