"""The flame graph: calls by the path of calls that led to them, added up over all threads and processes.

A call's parent is the last call of the lane above it that began before it, so lanes alone give the tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from torchreel.web.lanes import Lane
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_NODES = 5_000


class _Paths:
    """Nodes of the tree by their parent and label, with what was added up for them."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self.total: list[int] = []
        self.calls: list[int] = []

    def add(self, parents: Any, labels: Any, durations: Any) -> Any:
        """Add up calls; gives the node of each."""
        keys, inverse = np.unique(np.stack([parents, labels], 1), axis=0, return_inverse=True)
        inverse = inverse.ravel()
        numbers = np.array([self._number(int(parent), int(label)) for parent, label in keys], np.int64)
        totals = np.bincount(inverse, durations.astype(np.float64), len(keys))
        counts = np.bincount(inverse, minlength=len(keys))
        for number, total, count in zip(numbers, totals, counts, strict=True):
            self.total[number] += int(total)
            self.calls[number] += int(count)
        return numbers[inverse]

    def _number(self, parent: int, label: int) -> int:
        number = self._numbers.setdefault((parent, label), len(self._numbers))
        if number == len(self.total):
            self.total.append(0)
            self.calls.append(0)
        return number

    def rows(self) -> list[dict[str, int]]:
        return [
            {
                "id": number,
                "parent": parent,
                "label": label,
                "total_ns": self.total[number],
                "calls": self.calls[number],
            }
            for (parent, label), number in self._numbers.items()
        ]


def flame(viewed: ViewedReel, query: Query) -> dict[str, Any]:
    """Calls by the path that led to them, in a range of time."""
    begin, end = viewed.range(query)
    return flame_of(viewed.lanes, begin - viewed.origin, end - viewed.origin + 1)


def flame_of(lanes: Sequence[Lane], begin: int, end: int) -> dict[str, Any]:
    """The nodes of calls that began in a range, widest first; `left_out` counts those beyond MOST_NODES."""
    paths = _Paths()
    for thread in _by_thread(lanes):
        nodes: Any = None
        above: Lane | None = None
        for lane in thread:
            parents = np.full(len(lane), -1, np.int64)
            if above is not None:
                at = above.starts.searchsorted(lane.starts, "right") - 1
                parents = np.where(at >= 0, nodes[np.maximum(at, 0)], -2)
            inside = (lane.starts >= begin) & (lane.starts < end) & (parents != -2)
            found = np.full(len(lane), -2, np.int64)
            if inside.any():
                every = np.arange(len(lane))[inside]
                found[inside] = paths.add(parents[inside], lane.labels[inside], lane.durations(every))
            nodes, above = found, lane
    rows = paths.rows()
    rows.sort(key=lambda row: (-row["total_ns"], row["id"]))
    return {"nodes": rows[:MOST_NODES], "left_out": max(0, len(rows) - MOST_NODES)}


def _by_thread(lanes: Iterable[Lane]) -> list[list[Lane]]:
    """The lanes of each thread, the outermost first; asynchronous calls have no place in a stack."""
    threads: dict[tuple[int, int], list[Lane]] = {}
    for lane in lanes:
        if not lane.is_async:
            threads.setdefault((lane.process, lane.thread), []).append(lane)
    return [sorted(thread, key=lambda lane: lane.depth) for thread in threads.values()]
