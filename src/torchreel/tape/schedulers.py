"""Whether a scheduler of the learning rate takes a step within a function: it is Python, and leaves no other trace."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from torch.optim import lr_scheduler

stepped = False


def _update(self, epoch=None):  # type: ignore[no-untyped-def]
    from torchreel.tape import schedulers

    schedulers.stepped = True
    schedulers._originals[0](self, epoch)


def _plateau(self, metrics, epoch=None):  # type: ignore[no-untyped-def]
    from torchreel.tape import schedulers

    schedulers.stepped = True
    schedulers._originals[1](self, metrics, epoch)


def _restarts(self, epoch=None):  # type: ignore[no-untyped-def]
    from torchreel.tape import schedulers

    schedulers.stepped = True
    schedulers._originals[2](self, epoch)


def _copy(function: Any) -> Callable[..., None]:
    return types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)


# All others come to the first of these.
_methods: list[Any] = [
    lr_scheduler.LRScheduler._update_lr,
    lr_scheduler.ReduceLROnPlateau.step,
    lr_scheduler.CosineAnnealingWarmRestarts.step,
]
_codes = [method.__code__ for method in _methods]
_originals = [_copy(method) for method in _methods]
_watched: list[Any] = [_update, _plateau, _restarts]


def watch(on: bool) -> None:
    """Exchange the code of the methods, as torchreel.tape.clearing does."""
    global stepped
    if on:
        stepped = False
    for method, code, watched in zip(_methods, _codes, _watched, strict=True):
        method.__code__ = watched.__code__ if on else code
