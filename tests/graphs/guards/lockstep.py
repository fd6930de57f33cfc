"""A program run eagerly and through a graph from the same start, and held to be the same after each call.

Each of the two runs has a program of its own, made by the same factory, so that nothing of Python is shared.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

import torchreel
from tests.graphs.guards.described import Description, difference
from tests.tape.outcome import bits

Function = Callable[..., Any]
CALL = "call"
Step = str | tuple[str, int]  # a call, or what is done to one of the changes


class Given:
    """The arguments of one call."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs


def sample(number: int, *shape: int) -> torch.Tensor:
    """Numbers for the call of this number."""
    return torch.randn(shape or (3,), generator=torch.Generator().manual_seed(number))


@dataclass(frozen=True)
class Change:
    """Of something that Python holds, and back."""

    do: Callable[[], Any]
    undo: Callable[[], Any] | None = None
    idle: bool = False  # it makes no difference to eager, and must make none to a replay


def _no_use(out: Any) -> None:
    pass


@dataclass
class Case:
    """A program: a function, how it is called, and what is changed between calls."""

    function: Function
    changes: list[Change] = field(default_factory=list)
    given: Callable[[int], Given] = lambda number: Given(sample(number))
    observe: Callable[[], Any] = lambda: None  # what a call may have changed besides its arguments
    use: Callable[[Any], Any] = _no_use  # what the caller does with the result, a backward for example
    around: Callable[[int], Any] = lambda number: contextlib.nullcontext()
    call: Callable[[Function, Given], Any] = lambda function, given: function(*given.args, **given.kwargs)
    digest: Callable[[Any], Any] = lambda out: out  # of results that no two runs have in common, such as times
    close: Callable[[], Any] = lambda: None


class Notice(UserWarning):
    """The warning that programs give: torch's and ours are not compared."""


@contextlib.contextmanager
def calm() -> Iterator[None]:
    """What a program may leave changed in the process is put back."""
    before = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
    precision, autocast = torch.get_float32_matmul_precision(), torch.get_autocast_dtype("cpu")
    modules, environment, random_state = set(sys.modules), dict(os.environ), torch.get_rng_state()
    if before[1] != 1:
        torch.set_num_threads(1)  # the programs are small: threads would wait for each other most of the time
    try:
        yield
    finally:
        torch.set_default_dtype(before[0])
        if torch.get_num_threads() != before[1]:
            torch.set_num_threads(before[1])
        torch.set_grad_enabled(before[2])
        torch.set_float32_matmul_precision(precision)
        torch.set_autocast_dtype("cpu", autocast)
        torch.set_autocast_enabled("cpu", False)
        if torch.are_deterministic_algorithms_enabled() or torch.is_deterministic_algorithms_warn_only_enabled():
            torch.use_deterministic_algorithms(False)
        torch.set_rng_state(random_state)
        for name in sys.modules.keys() - modules:
            if name.startswith("kinds_"):
                del sys.modules[name]
        if os.environ != environment:
            os.environ.clear()
            os.environ.update(environment)


def module_of(name: str, source: str, **values: Any) -> types.ModuleType:
    """A module of its own, so that its globals belong to one run alone."""
    module = types.ModuleType(f"kinds_{name}")
    module.__dict__.update(values)
    sys.modules[module.__name__] = module
    exec(compile(source, f"<{module.__name__}>", "exec"), module.__dict__)
    return module


class Run:
    """One of the two: it makes its program, and tells what there is to see after each call."""

    def __init__(self, make: Callable[[], Case], wrap: Callable[[Function], Function], hold: bool) -> None:
        torch.default_generator.manual_seed(0)
        random.seed(0)
        numpy.random.seed(0)  # programs read it
        self.case = make()
        self.function = wrap(self.case.function)
        self._held: list[Any] | None = [] if hold else None
        self._number = 0
        self._changed: set[int] = set()
        self._refused: Raised | None = None

    def steps(self, schedule: list[Step]) -> list[dict[str, Any]]:
        found = []
        try:
            for step in schedule:
                if step == CALL:
                    found.append(self._call())
                else:
                    self._change(*step)
        finally:
            for place in sorted(self._changed, reverse=True):  # some are of the process, and others run in it too
                self._change("undo", place)
            self.case.close()
        return found

    def _change(self, way: str, place: int) -> None:
        change = self.case.changes[place]
        done = change.do if way == "do" else change.undo
        if done is None:
            return
        (self._changed.add if way == "do" else self._changed.discard)(place)
        try:
            done()
        except Exception as error:  # torch may refuse to, for what others hold
            self._refused = Raised(type(error).__name__, str(error))

    def _call(self) -> dict[str, Any]:
        given, out, used, raised = self.case.given(self._number), None, None, None
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                with self.case.around(self._number):
                    out = self.case.digest(self.case.call(self.function, given))
            except Exception as error:
                raised = type(error).__name__, str(error)
        self._number += 1
        found = self._seen(given, out)
        with contextlib.redirect_stdout(printed):
            try:
                used = None if raised else self.case.use(out)
            except Exception as error:
                raised = type(error).__name__, str(error)
        if self.case.use is not _no_use:
            found["after use"] = self._seen(given, out)
        found["use gave"] = Description().of(used)
        found["printed"] = printed.getvalue()
        found["warned"] = [str(one.message) for one in told if issubclass(one.category, Notice)]
        found["raised"] = Raised(*raised) if raised else None
        found["change refused"], self._refused = self._refused, None
        return found

    def _seen(self, given: Given, out: Any) -> dict[str, Any]:
        description = Description()
        seen = {
            "arguments": description.of(list(given.args)),
            "keywords": description.of(given.kwargs),
            "state": description.of(self.case.observe()),
            "output": description.of(out),
            "torch random": bits(torch.get_rng_state()),
            "python random": hash((random.getstate(), numpy.random.get_state()[1].tobytes())),
        }
        if self._held is not None:
            seen["held"] = Description().of(self._held)
            self._held.append(out)
        return seen


class Raised:
    """An error: two are the same if they are of one type; the text is for those who read it."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Raised) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"{self.name}: {self.text}"


def late(changes: int) -> list[Step]:
    """Changes come when the calls are replayed."""
    found: list[Step] = [CALL] * 4
    for place in range(changes):
        found += [("do", place), *[CALL] * 3, ("undo", place), *[CALL] * 3]
    return found if changes else found * 2


def second(changes: int) -> list[Step]:
    """The first change comes before the call that is recorded."""
    found: list[Step] = [CALL]
    for place in range(changes):
        found += [("do", place), *[CALL] * 3, ("undo", place), *[CALL] * 3]
    return found if changes else [CALL] * 3


def third(changes: int) -> list[Step]:
    """The first change comes before the call that would be the first to be replayed."""
    found: list[Step] = [CALL] * 2
    for place in range(changes):
        found += [("do", place), *[CALL] * 4, ("undo", place), *[CALL] * 4]
    return found if changes else [CALL] * 5


def alternating(changes: int) -> list[Step]:
    """A change before every call."""
    found: list[Step] = []
    for place in range(changes):
        found += [CALL, ("do", place), CALL, ("undo", place)] * 4
    return found + [CALL, CALL]


SCHEDULES = {"late": late, "second": second, "third": third, "alternating": alternating}


Schedule = Callable[[int], list[Step]]  # of so many changes


def outcomes(
    make: Callable[[], Case], wrap: Callable[[Function], Function], steps: list[Step] | Schedule, hold: bool
) -> tuple[list[dict[str, Any]], Run]:
    with calm():
        run = Run(make, wrap, hold)
        return run.steps(steps if isinstance(steps, list) else steps(len(run.case.changes))), run


def plain(function: Function) -> Function:
    return function


def held_to_eager(make: Callable[[], Case], steps: list[Step] | Schedule, hold: bool = False, **options: Any) -> Run:
    """Runs it both ways, and says what differs first; gives the run through a graph."""
    theirs, eager = outcomes(make, plain, steps, hold)
    if not isinstance(steps, list):
        steps = steps(len(eager.case.changes))
    ours, run = outcomes(make, lambda function: torchreel.graphed(function, **options), steps, hold)
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a == b, f"{_told(steps, place)}: {difference(a, b)}"
    return run


def _told(steps: list[Step], place: int) -> str:
    calls = [at for at, step in enumerate(steps) if step == CALL]
    before = [f"{way} {which}" for way, which in (step for step in steps[: calls[place]] if step != CALL)]
    return f"call {place + 1} (changes before it: {', '.join(before) or 'none'})"
