"""The one count of a recording's steps: of the program's first optimizer, until the program counts by hand."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchreel import _core

if TYPE_CHECKING:
    from torch.optim import Optimizer

# Who says that a step begins, as native/base/spool_format.h has it.
FIRST, BY_OPTIMIZER, BY_HAND = range(3)


class CountedSteps:
    """Steps of the first optimizer that is seen to step, counted by the native core: no hook is in the program, so that
    functions that step an optimizer are traced and replayed as without a recording."""

    def __init__(self, count: StepCount) -> None:
        self._count = count
        _core.count_optimizer_steps(count.number, count.begun)

    def close(self) -> None:
        self._count.begun = _core.stop_counting_optimizer_steps() or self._count.begun


class HookedSteps:
    """Counts steps likewise, and calls back after each."""

    def __init__(self, on_step: Callable[[], None]) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._on_step = on_step
        self._clock: weakref.ref[Optimizer] | None = None
        self._hook = register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> None:
        if self._clock is None or self._clock() is None:
            self._clock = weakref.ref(optimizer)
        if self._clock() is optimizer:
            self._on_step()

    def close(self) -> None:
        self._hook.remove()


class StepCount:
    """Counts, and tells where a step begins. A step by hand makes those of optimizers uncounted, also earlier ones.

    A process that may never step, such as a loader of data, says what its first step is when the second begins.
    """

    def __init__(self, first: int, define: Callable[[int, int, int | None], None], start: Callable[[], int]) -> None:
        self.number = first
        self.is_by_hand = False
        self._first = first
        self._define = define
        self._start = start
        self.begun = False

    def begin(self) -> None:
        """The first step begins here."""
        self.begun = True
        self._define(self._first, FIRST, None)

    def next(self, *, by_hand: bool) -> None:
        """The next step begins."""
        if not self.begun:
            self.begun = True
            self._define(self._first, FIRST, self._start())
        if by_hand and not self.is_by_hand:
            self.is_by_hand = True
            self.number = self._first
        self.number += 1
        self._define(self.number, BY_HAND if by_hand else BY_OPTIMIZER, None)
