"""Programs of every kind that Python can be, each call held to eager: replayed or left to eager, never wrong."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import torchreel
from tests.graphs.guards.lockstep import (
    CALL,
    SCHEDULES,
    held_to_eager,
    late,
    module_of,
    outcomes,
    plain,
)
from tests.graphs.guards.python_kinds import KINDS
from tests.sample import in_sample

pytestmark = pytest.mark.filterwarnings("ignore")  # what torch says of modes and hooks, and we of many recordings


# A change before every call mostly ends in eager; a change before the second call is found by fewer than a later one.
_MARKS = {"alternating": pytest.mark.long, "second": pytest.mark.long}


def _schedules(name: str) -> list[Any]:
    chosen = ["late"] if KINDS[name].brief else SCHEDULES
    return [pytest.param(name, schedule, marks=_marks(name, schedule)) for schedule in chosen]


def _marks(name: str, schedule: str) -> Any:
    """A late change finds most: a quarter of the kinds is its sample. A change before the third call has a 32nd."""
    if not in_sample(name, {"late": 4, "third": 32}.get(schedule, 1)):
        return pytest.mark.long
    return _MARKS.get(schedule, ())


@pytest.mark.parametrize(("name", "schedule"), [one for name in KINDS for one in _schedules(name)])
def test_kind(name: str, schedule: str) -> None:
    held_to_eager(KINDS[name].make, SCHEDULES[schedule], hold=schedule == "third", verify=0)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if not kind.brief])
def test_kind_with_the_options_of_most_users(name: str) -> None:
    held_to_eager(KINDS[name].make, late)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.replays])
def test_kind_is_replayed(name: str) -> None:
    run: Any = held_to_eager(KINDS[name].make, [CALL] * 6, verify=0)
    assert run.function.replays() > 0


@pytest.mark.long  # a test of these tests: it tells of no graph
@pytest.mark.parametrize("name", KINDS)
def test_changes_of_a_kind_can_be_told(name: str) -> None:
    """Of a change that makes no difference to eager, nothing could be learned."""
    make = KINDS[name].make
    unchanged, run = outcomes(make, plain, [CALL] * 7, hold=False)
    for place, change in enumerate(run.case.changes):
        steps = [*[CALL] * 4, ("do", place), *[CALL] * 3]
        assert change.idle or outcomes(make, plain, steps, hold=False)[0] != unchanged, f"change {place}"


def _warned(wrap: Any) -> list[int]:
    """How often a warning was shown until each call; between two, the filters are touched and left as they were."""
    shown: list[str] = []
    module = module_of("warns", "import warnings\n\ndef function(x):\n    warnings.warn('mine')\n    return x * 2\n")
    counts = []
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_, **__: shown.append(str(message))
        function = wrap(module.function)
        for place in range(10):
            function(torch.ones(3))
            counts.append(shown.count("mine"))
            if place == 6:
                with warnings.catch_warnings():
                    pass
    return counts


def test_warning_that_is_shown_again() -> None:
    assert _warned(lambda function: torchreel.graphed(function, verify=0)) == _warned(plain)
