"""What of a reel fits into a file of a given size.

All calls, if they fit. Otherwise the first, the slowest and the median step stay whole, and of the rest the longest
calls, as many as fit. A call that is in has all calls around it in, too: they are longer.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from torchreel.analyze import phases, typical_step
from torchreel.web.html.calls import Calls
from torchreel.web.html.planes import Planes, compressed, zigzag
from torchreel.web.memory_curve import Curve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchreel.web.viewed_reel import ViewedReel

    Flags = NDArray[np.bool_]

_ATTEMPTS = 8
_CAUTION = 0.95
_ENOUGH = 0.85
"""The part of the room that is well used."""
_CURVE_SHARE = 4
"""The memory curve takes at most one part in so many of the room."""


@dataclass(frozen=True)
class Step:
    number: int
    begin: int
    end: int


@dataclass(frozen=True)
class Kept:
    """The calls that are in the file."""

    calls: Calls
    chosen: Flags
    steps: tuple[Step, ...] = ()
    """The steps that are whole, if not all calls are in."""
    threshold_ns: int = 0
    """How long a call elsewhere must be to be in."""

    @property
    def is_whole(self) -> bool:
        return bool(self.chosen.all())

    @functools.cached_property
    def timeline(self) -> bytes:
        return self._timeline.compressed()

    @functools.cached_property
    def _timeline(self) -> Planes:
        return self.calls.timeline(self.chosen)

    @property
    def timeline_columns(self) -> list[tuple[str, int]]:
        return self._timeline.columns

    @functools.cached_property
    def _details(self) -> tuple[Planes, dict[str, Any]]:
        return self.calls.details(self.chosen)

    @functools.cached_property
    def details(self) -> bytes:
        return self._details[0].compressed()

    @property
    def detail_columns(self) -> list[tuple[str, int]]:
        return self._details[0].columns

    @functools.cached_property
    def texts(self) -> bytes:
        from torchreel.web.answers import Answers

        return compressed(Answers.encoded(self._details[1]))

    @functools.cached_property
    def count(self) -> int:
        return int(self.chosen.sum())

    @property
    def size(self) -> int:
        return len(self.timeline) + len(self.details) + len(self.texts)


@dataclass(frozen=True)
class Room:
    """How many bytes there is room for, and how many calls: each takes some 40 bytes of the browser's memory."""

    size: int
    calls: int

    def holds(self, kept: Kept) -> bool:
        """Whether it fits; details are made only if the timeline does."""
        return kept.count <= self.calls and len(kept.timeline) <= self.size and kept.size <= self.size


def fitting(calls: Calls, room: Room) -> Kept:
    """As much as fits, perhaps nothing."""
    every = Kept(calls, np.ones(len(calls), bool))
    if room.holds(every):
        return every
    steps = important_steps(calls.viewed)
    while steps and not room.holds(_of(calls, steps, None)):
        steps = steps[:-1]
    return _with_longest(calls, steps, room, len(every.timeline) / max(len(calls), 1))


def _of(calls: Calls, steps: Sequence[Step], threshold: int | None) -> Kept:
    """Steps as a whole, and elsewhere calls from a duration on; None stands for none of them."""
    chosen = np.zeros(len(calls), bool)
    ends = calls.starts + calls.durations
    for step in steps:
        chosen |= (calls.starts < step.end) & (ends >= step.begin)
    if threshold is not None:
        chosen |= calls.durations >= threshold
    least = int(calls.durations.max(initial=0)) + 1 if threshold is None else threshold
    return Kept(calls, chosen, tuple(sorted(steps, key=lambda step: step.begin)), least)


def _with_longest(calls: Calls, steps: Sequence[Step], room: Room, bytes_per_call: float) -> Kept:
    """The steps, and as many of the longest calls elsewhere as fit."""
    alone = best = _of(calls, steps, None)
    outside = np.sort(calls.durations[~alone.chosen])[::-1]
    most = min(len(outside), room.calls - alone.count)
    wanted = (room.size - alone.size) / bytes_per_call
    for _ in range(_ATTEMPTS):
        wanted = min(wanted, most)
        if wanted < 1:
            break
        tried = _of(calls, steps, int(outside[int(wanted) - 1]))
        holds = room.holds(tried)
        if holds:
            best = tried
        if holds and (tried.size > room.size * _ENOUGH or wanted == most):
            break
        if tried.count > room.calls:  # calls that share a duration are all in or all out
            wanted = int(np.searchsorted(-outside, -outside[int(wanted) - 1]))
            most = min(most, wanted)
        else:
            used = len(tried.timeline) if len(tried.timeline) > room.size else tried.size
            wanted = (tried.count - alone.count) * _CAUTION * room.size / used
    return best


def important_steps(viewed: ViewedReel) -> list[Step]:
    """The median step, the slowest and the first, by how much the page would miss them."""
    typical = typical_step(viewed.reel)
    if typical is None:
        return []
    rows = [row for row in phases(viewed.reel).to_pylist() if row["process"] == typical.process]
    rows = [row for row in rows if row["step"] is not None]
    if not rows:
        return []
    whole = [row for row in rows if row["whole"]] or rows
    whole.sort(key=lambda row: (row["end_ns"] - row["start_ns"], row["step"]))
    first = min(rows, key=lambda row: row["start_ns"])
    chosen = [whole[len(whole) // 2], whole[-1], first]
    steps = [Step(row["step"], row["start_ns"] - viewed.origin, row["end_ns"] - viewed.origin) for row in chosen]
    return list(dict.fromkeys(steps))


@dataclass(frozen=True)
class KeptCurve:
    """Memory over time as it is in the file; `step_ns` is 1 if it is exact, else how fine it is."""

    curve: Curve
    step_ns: int

    @functools.cached_property
    def planes(self) -> Planes:
        times, totals = (np.diff(values, prepend=0) for values in (self.curve.times, self.curve.totals))
        return Planes.of({"time": zigzag(times), "total": zigzag(totals)})

    @functools.cached_property
    def bytes(self) -> bytes:
        return self.planes.compressed()


def fitting_curve(curve: Curve | None, end: int, room: int) -> KeptCurve | None:
    """The curve, or as fine a one as fits into its share of the room."""
    if curve is None or not len(curve.times):
        return None
    kept = KeptCurve(curve, 1)
    level = max(0, (end // max(len(curve.times), 1)).bit_length())
    while len(kept.bytes) > max(room // _CURVE_SHARE, 1) and len(kept.curve.times) > 3:
        kept = KeptCurve(_coarser(curve, level), 1 << level)
        level += 1
    return kept


def _coarser(curve: Curve, level: int) -> Curve:
    """Of each piece of 2**level ns the least, the most and the last total: extremes of longer pieces stay exact."""
    piece = curve.times >> level
    firsts = np.flatnonzero(np.diff(piece, prepend=piece[0] - 1))
    lasts = np.append(firsts[1:], len(piece)) - 1
    order = np.lexsort((np.arange(len(piece)), curve.totals, piece))
    kept = np.unique(np.concatenate([order[firsts], order[lasts], lasts]))
    return Curve(curve.times[kept], curve.totals[kept])
