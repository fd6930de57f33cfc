"""Peaks: the most that was allocated, active and reserved, and the moment of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchreel.analyze.memory.model.device import DeviceMemory
from torchreel.analyze.memory.model.phases import PHASES
from torchreel.analyze.memory.model.run import Run
from torchreel.reel.allocator_history import AllocatorHistory
from torchreel.reel.columns import NOTHING, Ints, ints, texts


@dataclass(frozen=True)
class Moment:
    """A moment of a history, as far as it is known."""

    event: int  # the number of the event after which it is, from 0; -1 before all of them
    time_ns: int | None
    since_start_ns: int | None
    step: int | None
    phase: str | None  # forward, backward, optimizer ... of the block of this event
    range: str | None  # the innermost range or annotation that was open
    line: str | None  # of the source, that made the block of this event
    op: str | None


@dataclass(frozen=True)
class Peak:
    """The greatest level, and when it was first reached."""

    bytes: int
    moment: Moment


@dataclass(frozen=True)
class Peaks:
    allocated: Peak
    active: Peak
    reserved: Peak | None  # None where the allocator reserves nothing
    allocated_at_peak_reserved: int | None  # the most that was allocated while that much was reserved


def peaks(memory: DeviceMemory) -> Peaks:
    """The peaks of one device."""
    history = memory.history
    reserved = _peak(memory, history.reserved) if history.reserves else None
    at = None if reserved is None else int(history.allocated[history.reserved == reserved.bytes].max())
    return Peaks(_peak(memory, history.allocated), _peak(memory, history.active), reserved, at)


def _peak(memory: DeviceMemory, level: Ints) -> Peak:
    index = int(level.argmax())
    return Peak(int(level[index]), moment(memory, index - 1))


def moment(memory: DeviceMemory, position: int) -> Moment:
    """What is known of the moment after an event."""
    history = memory.history
    time = history.time_of(position)
    made = np.flatnonzero((history.blocks.start == position) & (position >= 0))
    line = op = phase = None
    if len(made):
        phase = PHASES[memory.phases.phase[made[0]]]
        line, op = (_known(memory, by, int(made[0])) for by in ("stack", "op"))
    return Moment(
        event=position,
        time_ns=time,
        since_start_ns=None if time is None or history.start_ns is None else time - history.start_ns,
        step=memory.steps.number(position),
        phase=phase,
        range=None if time is None else _open_range(memory.run, history, time),
        line=line,
        op=op,
    )


def _known(memory: DeviceMemory, by: str, block: int) -> str | None:
    labels = memory.labels(by)
    text = labels.texts[labels.number[block]]
    return None if text in ("(no stack)", "(no op)") else text


def _open_range(run: Run, history: AllocatorHistory, time: int) -> str | None:
    """The range that began last of those that were open."""
    calls, ranges = run.calls, run.ranges
    ranges = ranges[(calls.start[ranges] <= time) & (time < calls.end[ranges])]
    if len(ranges):
        return calls.names[int(calls.name[ranges[calls.start[ranges].argmax()]])]
    return _open_annotation(run, time)


def _open_annotation(run: Run, time: int) -> str | None:
    times = ints(run.annotations, "time_ns")
    names, words = texts(run.annotations, "name")
    stages, stage_words = texts(run.annotations, "stage")
    open_names: list[int] = []
    for name, stage in zip(names[times <= time], stages[times <= time], strict=True):
        if name == NOTHING or stage == NOTHING:
            continue
        if stage_words[stage] == "START":
            open_names.append(int(name))
        elif name in open_names:
            del open_names[len(open_names) - 1 - open_names[::-1].index(int(name))]
    return words[open_names[-1]] if open_names else None
