"""Spikes: short-lived blocks that raise the level above what was there before and after them.

The level of allocated memory is compared with itself after an opening, as in image processing: a sliding minimum, then
a sliding maximum, which takes away everything that is narrower than the window and leaves slopes and plateaus alone.
The window is a tenth of a step, in events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchreel.analyze.memory.model.device import DeviceMemory
from torchreel.analyze.memory.peak import Moment, moment
from torchreel.reel.columns import Ints

_NARROWEST = 8  # events
_PART = 10  # of a step
_STEPS = 5  # that a history without steps is taken for
_NOTABLE = 0.01  # of the peak
_CANDIDATES = 200
_LINES = 3


@dataclass(frozen=True)
class Spike:
    """One spike, and how often its like came again."""

    bytes: int  # above the level around it
    level: int  # the whole of what was allocated
    moment: Moment
    duration_ns: int | None
    events: int
    at_peak: bool  # the peak of allocated memory is in it
    lines: tuple[tuple[str, int], ...]  # that made it, with their bytes
    times: int  # how many spikes of the same line there are, this one among them


def spikes(memory: DeviceMemory) -> list[Spike]:
    """The highest spike of each line that makes any; the highest first."""
    level = memory.history.allocated
    above = level - level_without_spikes(memory)
    least = max(_NOTABLE * int(level.max()), 1)
    regions: dict[str, list[tuple[int, int]]] = {}
    for first, last in _regions(above, level, least):
        lines = _lines(memory, above, first, last)
        regions.setdefault(lines[0][0] if lines else "", []).append((first, last))
    return [_spike(memory, above, *found[0], len(found)) for found in regions.values()]


def level_without_spikes(memory: DeviceMemory) -> Ints:
    """The level of allocated memory, with all that is narrower than the window cut off."""
    level, width = memory.history.allocated, _width(memory)
    return _slide(_slide(level, width, np.minimum), width, np.maximum)


def _width(memory: DeviceMemory) -> int:
    steps = len(memory.steps) or max(len(memory.phases.backward_starts), _STEPS)
    return max(_NARROWEST, memory.history.events // steps // _PART) | 1


def _slide(level: Ints, width: int, choose: np.ufunc) -> Ints:
    """The least or greatest of each item's surroundings, as wide as that: windows of 1, 2, 4 ... are joined."""
    half = width // 2
    padded = np.pad(level, half, mode="edge")
    reach = 1
    while 2 * reach <= width:
        padded = choose(padded[:-reach], padded[reach:])
        reach *= 2
    result: Ints = choose(padded[: len(level)], padded[width - reach :][: len(level)])
    return result


def _regions(above: Ints, level: Ints, least: float) -> list[tuple[int, int]]:
    """Where the level is above its surroundings by enough: first and last items, the highest first.

    Of equal ones that which reaches the highest level comes first.
    """
    raised = np.concatenate(([False], above > 0, [False]))
    edges = np.flatnonzero(raised[1:] != raised[:-1])
    firsts, lasts = edges[::2], edges[1::2] - 1
    if not len(firsts):
        return []
    indices = np.stack((firsts, lasts + 1), axis=1).ravel()
    heights, tops = (np.maximum.reduceat(np.append(values, 0), indices)[::2] for values in (above, level))
    order = [n for n in np.lexsort((-tops, -heights))[:_CANDIDATES] if heights[n] >= least]
    return [(int(firsts[n]), int(lasts[n])) for n in order]


def _top(above: Ints, first: int, last: int) -> int:
    return first + int(above[first : last + 1].argmax())


def _spike(memory: DeviceMemory, above: Ints, first: int, last: int, times: int) -> Spike:
    history, index = memory.history, _top(above, first, last)
    start, end = history.time_of(first - 1), history.time_of(last)
    return Spike(
        bytes=int(above[index]),
        level=int(history.allocated[index]),
        moment=moment(memory, index - 1),
        duration_ns=None if start is None or end is None else end - start,
        events=last - first + 1,
        at_peak=bool(history.allocated[index] == history.allocated.max()),
        lines=_lines(memory, above, first, last),
        times=times,
    )


def _lines(memory: DeviceMemory, above: Ints, first: int, last: int) -> tuple[tuple[str, int], ...]:
    """The lines of the blocks that live at the top of a spike and nowhere else.

    Where these do not make up for it, a block took the place of another: then the lines of all that it made.
    """
    blocks, labels = memory.history.blocks, memory.labels("stack")
    index = _top(above, first, last)
    alive = memory.history.alive(index - 1)
    made = alive[blocks.start[alive] >= first - 1]
    own = made[blocks.end[made] <= last]
    if 2 * int(blocks.size[own].sum()) < int(above[index]):
        own = made
    totals = np.bincount(labels.number[own], blocks.size[own], len(labels.texts)).astype(np.int64)
    order = np.argsort(-totals, kind="stable")[:_LINES]
    return tuple((labels.texts[n], int(totals[n])) for n in order if totals[n])
