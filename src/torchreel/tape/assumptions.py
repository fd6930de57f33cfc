"""What a tape takes for granted of Python's side: the settings of optimizers, and whether modules are in training.

These are numbers and flags that the function read without an op. If they are others now, calling the function would run
other ops than those on the tape.
"""

from __future__ import annotations

from typing import Any

import torch

from torchreel.errors import ReplayError
from torchreel.tape.optimizers import StepTaken


class Assumptions:
    def __init__(self, steps: list[StepTaken], modules: list[torch.nn.Module], scheduled: bool) -> None:
        self._steps = steps
        self._modules = [(module, module.training) for module in modules]
        self._scheduled = scheduled

    def check(self) -> None:
        """Raises a ReplayError if something is not as it was."""
        if self._scheduled:
            raise ReplayError(
                "A scheduler of the learning rate took a step within the function, and its count is not on the tape: "
                "call scheduler.step() outside of what is traced, and trace again when it changes the rate."
            )
        for step in self._steps:
            groups = getattr(step.optimizer(), "param_groups", [])
            for group, (names, values) in zip(groups, step.settings, strict=False):
                if tuple(map(group.get, names)) != values:
                    raise _changed(group, names, values)
        for module, training in self._modules:
            if module.training is not training:
                was, now = ("training", "evaluation") if training else ("evaluation", "training")
                raise ReplayError(
                    f"A {type(module).__name__} was in {was} mode when the tape was made, and is in {now} mode now: "
                    f"call model.{'train' if training else 'eval'}() first, or trace again."
                )


def _changed(group: dict[str, Any], names: tuple[str, ...], values: tuple[Any, ...]) -> ReplayError:
    name, was = next((name, was) for name, was in zip(names, values, strict=True) if group.get(name) != was)
    return ReplayError(
        f"The optimizer's {name} was {was!r} when the tape was made, and is {group.get(name)!r} now; the tape has the "
        "old one: trace again."
    )
