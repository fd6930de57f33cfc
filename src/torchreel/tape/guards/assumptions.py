"""What a tape takes for granted of Python's side: the settings of optimizers, and whether modules are in training.

These are numbers and flags that the function read without an op. If they are others now, calling the function would run
other ops than those on the tape.
"""

from __future__ import annotations

import torch

from torchreel.errors import ReplayError
from torchreel.tape.capture.optimizers.optimizers import StepTaken


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
            for group, settings in zip(groups, step.settings, strict=False):
                settings.check(group)
        for module, training in self._modules:
            if module.training is not training:
                was, now = ("training", "evaluation") if training else ("evaluation", "training")
                raise ReplayError(
                    f"A {type(module).__name__} was in {was} mode when the tape was made, and is in {now} mode now: "
                    f"call model.{'train' if training else 'eval'}() first, or trace again."
                )
