"""Live PyTorch -> reel."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from torchreel.record.options import RecordOptions
from torchreel.record.ranges import mark, range
from torchreel.record.recorder import Recorder
from torchreel.record.schedule import Schedule, schedule

__all__ = ["RecordOptions", "Recorder", "Schedule", "mark", "range", "record", "schedule"]


def record(path: str | os.PathLike[str], *, schedule: Schedule | None = None, **options: Any) -> Recorder:
    """A recorder for `with`: `with torchreel.record("run.reel", shapes=True, memory=True): ...`.

    The options are those of RecordOptions.
    """
    return Recorder(path, RecordOptions(**options), schedule=schedule)


class _CallableModule(ModuleType):
    """`torchreel.record` names this room and, for users, the function in it."""

    __call__ = staticmethod(record)


sys.modules[__name__].__class__ = _CallableModule
