"""Makes lanes of rows of `ops` as they come: of a reel's files at once, of one that grows again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from torchreel.web.calls import Calls, Labels, ModuleNames, numbers
from torchreel.web.growing_array import GrowingArray
from torchreel.web.lanes import BLOCK, FIRST_ASYNC, INDEX_BITS, Lane

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class LaneBuilder:
    """The lanes of one process; a row costs the same, however many came before."""

    def __init__(self, process: int, origin: int, labels: Labels, modules: ModuleNames, rows: int = 0) -> None:
        """`rows` is how many are to come, if that is known: then lanes need not be copied as they grow."""
        self._process = process
        self._origin = origin
        self._labels = labels
        self._modules = modules
        self._rows = rows
        self._added = 0
        self._lanes: dict[tuple[int, int], _GrowingLane] = {}
        self._asynchronous: list[tuple[Ints, Calls]] = []  # with the thread of each call

    def add(self, table: pa.Table) -> int | None:
        """More rows: columns COLUMNS of `ops`. Gives when the earliest of them began."""
        if not table.num_rows:
            return None
        calls = Calls.of(table, self._origin, self._labels, self._modules)
        earliest = int(calls.starts.min())
        self._added += len(calls)
        threads, depths = numbers(table, "thread"), np.clip(numbers(table, "depth"), 0, FIRST_ASYNC - 1)
        asynchronous = _flags(table["async"])
        if asynchronous.any():
            self._asynchronous.append((threads[asynchronous], calls.take(asynchronous)))
            rest = ~asynchronous
            threads, depths, calls = threads[rest], depths[rest], calls.take(rest)
        self._sort_in(threads, depths, calls)
        return earliest

    def _sort_in(self, threads: Ints, depths: Ints, calls: Calls) -> None:
        if not len(calls):
            return
        # By lane, and within it as they come.
        first, deepest = int(threads.min()), int(depths.max()) + 1
        which: NDArray[Any] = (threads - first) * deepest + depths
        if is_small := which.max() < 1 << 16:
            which = which.astype(np.uint16)  # such numbers are sorted by counting
        order = np.argsort(which, kind="stable")
        lanes, begins = _counted(which) if is_small else np.unique(which[order], return_index=True)
        for lane, begin, end in zip(lanes.tolist(), begins, [*begins[1:], len(order)], strict=True):
            self._add_to((first + lane // deepest, lane % deepest), calls.take(order[begin:end]))

    def _add_to(self, key: tuple[int, int], calls: Calls) -> None:
        lane = self._lanes.get(key)
        growth = max(1.0, 1.02 * self._rows / self._added)  # lanes are about alike in all parts of a run
        if lane is None or not lane.is_before(calls):  # such as come from other tools may be in any order
            calls = Calls.joined([calls] if lane is None else [lane.lane(0, 0, 0).calls(), calls]).sorted()
            lane = self._lanes[key] = _GrowingLane()
        lane.add(calls, growth)

    def lanes(self) -> dict[tuple[int, int], Lane]:
        """By thread and depth. Lanes that were given before stay as they are."""
        found = {key: lane.lane(self._process, *key) for key, lane in self._lanes.items()}
        if self._asynchronous:
            threads = np.concatenate([threads for threads, _ in self._asynchronous])
            calls = Calls.joined([calls for _, calls in self._asynchronous])
            order = np.argsort(calls.starts, kind="stable")
            threads, calls = threads[order], calls.take(order)
            depths = _first_free(threads, calls)
            for thread, depth in sorted(set(zip(threads.tolist(), depths.tolist(), strict=True))):
                of_lane = calls.take((threads == thread) & (depths == depth))
                found[thread, depth] = lane_of(self._process, thread, depth, of_lane)
        return found


def _flags(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """What is not known is false. Where nothing is, pyarrow.compute need not be imported to say so."""
    if column.null_count == len(column):
        return np.zeros(len(column), bool)
    if column.null_count:
        column = column.fill_null(False)
    return np.asarray(column.to_numpy(zero_copy_only=False), bool)


def lane_of(process: int, thread: int, depth: int, calls: Calls) -> Lane:
    """The lane of calls in the order of their starts."""
    lane = _GrowingLane()
    lane.add(calls, growth=1.0)
    return lane.lane(process, thread, depth)


def _counted(which: NDArray[Any]) -> tuple[Ints, Ints]:
    """The numbers that are there, and where each begins once they are sorted."""
    counts = np.bincount(which)
    lanes = np.flatnonzero(counts)
    return lanes, np.append(0, np.cumsum(counts[lanes]))[:-1]


def _first_free(threads: Ints, calls: Calls) -> Ints:
    """Depths in which each asynchronous call, in the order of their starts, has the first lane that is free."""
    depths = np.empty(len(calls), np.int64)
    ends: dict[int, list[int]] = {}
    rows = zip(threads.tolist(), calls.starts.tolist(), calls.durations.tolist(), strict=True)
    for row, (thread, begin, duration) in enumerate(rows):
        lanes = ends.setdefault(thread, [])
        number = next((n for n, free in enumerate(lanes) if free <= begin), len(lanes))
        lanes[number : number + 1] = [begin + duration]
        depths[row] = FIRST_ASYNC + number
    return depths


class _GrowingLane:
    """The calls of one lane so far."""

    def __init__(self) -> None:
        self._starts = GrowingArray(np.int64)
        self._sums = GrowingArray(np.int64)
        self._sums.add(np.zeros(1, np.int64), growth=1.0)
        self._ids = GrowingArray(np.int32)
        self._labels = GrowingArray(np.uint16)
        self._most = GrowingArray(np.int64)
        self._longest = GrowingArray(np.int32)

    def is_before(self, calls: Calls) -> bool:
        """Whether calls, in their order, follow all that is here."""
        return bool(calls.starts[0] >= self._starts.values[-1]) and not (calls.starts[1:] < calls.starts[:-1]).any()

    def add(self, calls: Calls, growth: float) -> None:
        """Calls in the order of their starts, after all that is here; `growth` as for arrays."""
        first = len(self._starts.values) // BLOCK  # the block that is not full
        self._starts.add(calls.starts, growth)
        self._sums.add(self._sums.values[-1] + np.cumsum(calls.durations), growth)
        self._ids.add(calls.ids, growth)
        self._labels.add(calls.labels, growth)
        self._add_blocks(first)

    def _add_blocks(self, first: int) -> None:
        durations = np.diff(self._sums.values[first * BLOCK :])
        padded = np.pad(durations, (0, -len(durations) % BLOCK)).reshape(-1, BLOCK)
        numbers = first + np.arange(len(padded))
        most = np.minimum(padded.max(1), (1 << (63 - INDEX_BITS)) - 1)
        self._longest.add((padded.argmax(1) + BLOCK * numbers).astype(np.int32), growth=1.0, at=first)
        # One more than there are blocks: for the end.
        self._most.add(np.append(most << INDEX_BITS | numbers, 0), growth=1.0, at=first)

    def lane(self, process: int, thread: int, depth: int) -> Lane:
        return Lane(
            process=process,
            thread=thread,
            depth=depth,
            starts=self._starts.values,
            sums=self._sums.values,
            ids=self._ids.values,
            labels=self._labels.values,
            keys=self._most.values,
            longest=self._longest.values,
        )
