"""Whether a scheduler of the learning rate takes a step within a function: it is Python, and leaves no other trace."""

from __future__ import annotations

from typing import Any

from torch.optim import lr_scheduler

from torchreel._torch.modules import update_learning_rate
from torchreel.tape.capture.exchange import copy_of

stepped = False


def _update(self, epoch=None):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import schedulers

    schedulers.stepped = True
    schedulers._originals[0](self, epoch)


def _plateau(self, metrics, epoch=None):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import schedulers

    schedulers.stepped = True
    schedulers._originals[1](self, metrics, epoch)


def _restarts(self, epoch=None):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import schedulers

    schedulers.stepped = True
    schedulers._originals[2](self, epoch)


# All others come to the first of these.
_methods: list[Any] = [
    update_learning_rate,
    lr_scheduler.ReduceLROnPlateau.step,
    lr_scheduler.CosineAnnealingWarmRestarts.step,
]
_originals = [copy_of(method) for method in _methods]
EXCHANGED: list[tuple[Any, Any]] = list(zip(_methods, (_update, _plateau, _restarts), strict=True))
