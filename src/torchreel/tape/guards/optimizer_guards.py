"""Whether an optimizer that took a step on the tape still holds the same parameters, state and hooks."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from operator import is_
from typing import Any

import torch

from torchreel._torch.modules import step_post_hooks, step_pre_hooks
from torchreel.errors import GuardError
from torchreel.tape.guards.changes import changed


class OptimizerGuards:
    """The guards on one optimizer, made when the tape has ended."""

    def __init__(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        self._name = f"{name} ({type(optimizer).__name__})"
        self._path = name
        self._optimizer = weakref.ref(optimizer)
        self._was = _objects(optimizer)
        self._hooks = _count_hooks(optimizer)

    def check(self) -> None:
        """Raises a GuardError that names what has changed."""
        optimizer = self._optimizer()
        if optimizer is None:  # the function's own, or nobody's any more
            return
        now = _objects(optimizer)
        if len(now) == len(self._was) and all(map(is_, now, self._was)):
            return
        hooks = _count_hooks(optimizer)
        if hooks != self._hooks or not all(map(is_, now[:hooks], self._was)):
            raise changed(f"{self._path}.step_hooks", None, None)
        if len(now) == len(self._was):
            for name, was, value in zip(_names(optimizer), self._was[hooks:], now[hooks:], strict=True):
                if was is not value:
                    raise changed(f"{self._path}.{name}", was, value)
        raise GuardError(
            f"{self._name} has other parameters, or other state of them, than when the tape was made: trace again."
        )


def _count_hooks(optimizer: torch.optim.Optimizer) -> int:
    return len(step_pre_hooks(optimizer)) + len(step_post_hooks(optimizer))


def _objects(optimizer: torch.optim.Optimizer) -> list[Any]:
    """All that is to stay the same."""
    found = [*step_pre_hooks(optimizer).values(), *step_post_hooks(optimizer).values()]
    state = optimizer.state
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            found.append(parameter)
            found += [value for value in state.get(parameter, {}).values() if isinstance(value, torch.Tensor)]
    return found


def _names(optimizer: torch.optim.Optimizer) -> Iterator[str]:
    """The names of these objects without the hooks, in the same order."""
    for group_index, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            yield f"param_groups.{group_index}.params.{index}"
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"state.{group_index}.{index}.{key}"
