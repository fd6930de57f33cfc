"""Lanes without the calls of some kinds: what stood below them moves up, so that no gap stays."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from torchreel.web.calls import Calls, Labels
from torchreel.web.lane_builder import lane_of
from torchreel.web.lanes import Lane

if TYPE_CHECKING:
    from numpy.typing import NDArray


def without_kinds(lanes: Sequence[Lane], labels: Labels, kinds: Collection[str]) -> list[Lane]:
    """The lanes of the calls that stay, by process, thread and depth."""
    hidden = np.array([kind in kinds for _, kind, _ in labels], bool)
    found: list[Lane] = []
    for (process, thread), group in itertools.groupby(
        sorted(lanes, key=lambda lane: (lane.process, lane.thread, lane.depth)),
        key=lambda lane: (lane.process, lane.thread),
    ):
        for depth, parts in sorted(_by_depth(group, hidden).items()):
            found.append(lane_of(process, thread, depth, Calls.joined(parts).sorted()))
    return found


def _by_depth(lanes: Iterable[Lane], hidden: NDArray[np.bool_]) -> dict[int, list[Calls]]:
    """What stays of the lanes of one thread, the outermost first, by its new depth."""
    found: dict[int, list[Calls]] = {}
    above: Lane | None = None
    gone = np.empty(0, np.int64)  # for each call of the lane above, how many around and with it are hidden
    for lane in lanes:
        is_hidden = hidden[lane.labels]
        around = np.zeros(len(lane), np.int64)
        if above is not None and not lane.is_async and above.depth == lane.depth - 1:
            # A call's parent is the last call of the lane above that began before it.
            parents = above.starts.searchsorted(lane.starts, "right") - 1
            around = np.where(parents >= 0, gone[np.maximum(parents, 0)], 0)
        for moved in np.unique(around).tolist():
            calls = lane.calls().take((around == moved) & ~is_hidden)
            if len(calls):
                found.setdefault(lane.depth - moved, []).append(calls)
        above, gone = lane, around + is_hidden
    return found
