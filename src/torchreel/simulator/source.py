"""Where programs come from: a snapshot, a reel, a plain list of events."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from torchreel.errors import OptionError
from torchreel.ingest import open_source
from torchreel.reel import Reel
from torchreel.simulator.actions import PREEXISTING
from torchreel.simulator.event_list import Event, program_of_list
from torchreel.simulator.program import Programs
from torchreel.simulator.recorded.history import ACTION, History, histories
from torchreel.simulator.recorded.replay import program_of_history

Source = str | os.PathLike[str] | Reel | Programs | Iterable[Event]


def programs(source: Source) -> Programs:
    """The programs of all devices. One that is given is given back: it is not read twice."""
    if isinstance(source, Programs):
        return source
    if isinstance(source, Reel):
        return _of_reel(source)
    if isinstance(source, str | os.PathLike):
        with open_source(source) as reel:
            return _of_reel(reel)
    return Programs({"cuda:0": program_of_list(source)})


def named(found: list[History]) -> list[tuple[str, History]]:
    """Each with its device's name, and its process's number if there are several."""
    several = len({history.process for history in found}) > 1
    return [(f"{one.process}/{one.device}" if several else one.device, one) for one in found]


def _of_reel(reel: Reel) -> Programs:
    found = [history for history in histories(reel) if _has_program(history)]
    if not found:
        raise OptionError(
            f"{reel.path} holds no allocs that could be simulated: record a history with "
            "torch.cuda.memory._record_memory_history() before the snapshot, or memory=True in a recording."
        )
    return Programs({name: program_of_history(history) for name, history in named(found)})


def _has_program(history: History) -> bool:
    return history.has_events or bool(np.any(history.events[:, ACTION] == PREEXISTING)) or bool(history.blocks)
