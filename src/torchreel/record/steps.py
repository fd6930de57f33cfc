"""Steps of a program that does not count them: each step of its first optimizer is one."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook


class OptimizerSteps:
    """Calls back after each step of the first optimizer that is seen to step."""

    def __init__(self, on_step: Callable[[], None]) -> None:
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
