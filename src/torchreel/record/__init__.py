"""Live PyTorch -> reel. Importing this is the gate to the native core: it needs the torch that it was built for."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from torchreel.errors import UnavailableError

try:
    import torch  # noqa: F401 - the native core links against its libraries, so it comes first

    from torchreel import _core  # noqa: F401
except ImportError as error:
    raise UnavailableError(
        f"Recording needs torch 2.13.0 and the native core that was built for it ({error}): "
        "install torch==2.13.0 and then torchreel, or see 'torchreel doctor'."
    ) from error

from torchreel.record.options import RecordOptions
from torchreel.record.ranges import mark, range
from torchreel.record.recorder import Recorder, current_recorder, step
from torchreel.record.schedules import Schedule, schedule

__all__ = [
    "RecordOptions",
    "Recorder",
    "Schedule",
    "current_recorder",
    "mark",
    "range",
    "record",
    "schedule",
    "step",
]


def record(
    path: str | os.PathLike[str], *, schedule: Schedule | None = None, force: bool = False, **options: Any
) -> Recorder:
    """A recorder for `with`: `with torchreel.record("run.reel", shapes=True, memory=True): ...`.

    The options are those of RecordOptions. `force` replaces a reel of that name.
    """
    return Recorder(path, RecordOptions.from_words(options), schedule=schedule, force=force)


class _CallableModule(ModuleType):
    """`torchreel.record` names this room and, for users, the function in it."""

    __call__ = staticmethod(record)


sys.modules[__name__].__class__ = _CallableModule
