"""Lanes: what makes any view of 10^7 calls an exact answer in milliseconds, without a pyramid.

The calls of one thread at one depth never overlap. Sorted by start, with a running sum of their durations, they
answer by binary search, for any grid of pixels: how many calls begin in a pixel, how much of it is busy, and, by the
longest of each 16 calls, which one to draw there. Calls that ended on another thread do overlap: they are laid out on
as many lanes of their own as that takes. A call costs 23 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from torchreel.reel.tables import OPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchreel.reel.reel import Process

    Ints = NDArray[np.int64]

_BLOCK = 16
_INDEX_BITS = 24
_FIRST_ASYNC = 1 << 16
"""Depths from here on are lanes of asynchronous calls."""


class Labels:
    """Names and kinds of calls by number, the same for all processes of a reel."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    def number(self, name: str, kind: str) -> int:
        return self._numbers.setdefault((name, kind), len(self._numbers))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


@dataclass(frozen=True)
class Marks:
    """What to draw of a lane: calls by their position, how many each stands for, how busy (0 to 255) its pixel is."""

    at: Ints
    counts: NDArray[np.uint32]
    cover: NDArray[np.uint8]


@dataclass(frozen=True)
class Lane:
    """The calls of a thread at a depth. Times are nanoseconds since the reel's beginning."""

    process: int
    thread: int
    depth: int
    starts: Ints
    sums: Ints
    """One more than there are calls: the busy time before each call."""
    ids: NDArray[Any]
    labels: NDArray[np.uint16]
    keys: Ints
    """For each block of calls its longest duration, with the block's number below that; and one for the end."""
    longest: NDArray[np.int32]
    """For each block, which of all calls is its longest."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def is_async(self) -> bool:
        return self.depth >= _FIRST_ASYNC

    @property
    def nbytes(self) -> int:
        parts = (self.starts, self.sums, self.ids, self.labels, self.keys, self.longest)
        return sum(part.nbytes for part in parts)

    def durations(self, at: Any) -> Any:
        return self.sums[at + 1] - self.sums[at]

    def marks(self, begin: int, step: int, width: int) -> Marks | None:
        """At most one mark per pixel, for `width` pixels of `step` ns from `begin` on; None if nothing is there."""
        edges = begin + step * np.arange(width + 1, dtype=np.int64)
        before = self.starts.searchsorted(edges)  # calls that start before each edge
        low, high = int(before[0]), int(before[-1])
        is_open = low > 0 and self.starts[low - 1] + self.durations(low - 1) > begin
        first = low - 1 if is_open else low
        if high == first:
            return None
        if high - first <= width:
            at = np.arange(first, high)
            return Marks(at, np.ones(len(at), np.uint32), np.full(len(at), 255, np.uint8))
        counts = np.diff(before)
        hit = np.flatnonzero(counts)
        at = self._longest_of(before[hit], before[hit + 1])
        last = np.maximum(before - 1, 0)
        over = np.where(before > 0, np.maximum(self.starts[last] + self.durations(last) - edges, 0), 0)
        busy = np.diff(self.sums[before] - over)[hit]
        cover = np.clip(busy * 255 // step, 1, 255).astype(np.uint8)
        counts = counts[hit].astype(np.uint32)
        if is_open:
            at, counts, cover = np.insert(at, 0, first), np.insert(counts, 0, 1), np.insert(cover, 0, 255)
        return Marks(at, counts, cover)

    def _longest_of(self, low: Ints, high: Ints) -> Ints:
        """The longest call of each range [low, high): of its edges call by call, of what is between them by blocks."""
        reach = np.arange(min(_BLOCK, int((high - low).max())))
        near_low = np.minimum(low[:, None] + reach, high[:, None] - 1)
        near_high = np.maximum(high[:, None] - 1 - reach, low[:, None])
        edges = np.concatenate([near_low, near_high], 1)
        lengths = self.durations(edges)
        pick = lengths.argmax(1)
        rows = np.arange(len(low))
        best: Ints = edges[rows, pick]
        most = lengths[rows, pick]
        first, last = -(-low // _BLOCK), high // _BLOCK
        wide = np.flatnonzero(last > first)
        if len(wide):
            pairs = np.stack([first[wide], last[wide]], 1).ravel()
            inner = self.longest[np.maximum.reduceat(self.keys, pairs)[::2] & ((1 << _INDEX_BITS) - 1)]
            best[wide] = np.where(self.durations(inner) > most[wide], inner, best[wide])
        return best

    def at_time(self, moment: int) -> int | None:
        """Which call is open at a moment."""
        at = int(self.starts.searchsorted(moment, "right")) - 1
        return at if at >= 0 and self.starts[at] + self.durations(at) > moment else None


def read_lanes(part: Process, origin: int, labels: Labels) -> list[Lane]:
    """The lanes of one process, by thread and depth."""
    table = part.table(OPS, ["id", "thread", "name", "kind", "start_ns", "dur_ns", "depth", "async"])
    if not table.num_rows:
        return []
    table = table.unify_dictionaries()
    label = _label_numbers(table, labels)
    starts, durations = (_numbers(table, name) for name in ("start_ns", "dur_ns"))
    starts = starts - origin
    threads, depths, ids = (_numbers(table, name) for name in ("thread", "depth", "id"))
    if ids.max() < np.iinfo(np.int32).max:
        ids = ids.astype(np.int32)
    asynchronous = np.asarray(table["async"].fill_null(False).to_numpy(zero_copy_only=False), bool)
    if asynchronous.any():
        depths = _with_async_lanes(threads, depths, starts, durations, asynchronous)
    order = np.lexsort((starts, depths, threads))
    changes = np.flatnonzero((np.diff(threads[order]) != 0) | (np.diff(depths[order]) != 0)) + 1
    lanes = []
    for rows in np.split(order, changes):
        first = rows[0]
        place = (part.index, int(threads[first]), int(depths[first]))
        lanes.append(_lane(*place, starts[rows], durations[rows], ids[rows], label[rows]))
    return lanes


def _lane(
    process: int, thread: int, depth: int, starts: Ints, durations: Ints, ids: Any, labels: NDArray[np.uint16]
) -> Lane:
    padded = np.pad(durations, (0, -len(durations) % _BLOCK)).reshape(-1, _BLOCK)
    longest = (padded.argmax(1) + _BLOCK * np.arange(len(padded))).astype(np.int32)
    most = np.minimum(padded.max(1), (1 << (63 - _INDEX_BITS)) - 1)
    return Lane(
        process=process,
        thread=thread,
        depth=depth,
        starts=starts,
        sums=np.concatenate([[0], np.cumsum(durations)]),
        ids=ids,
        labels=labels,
        keys=np.append(most << _INDEX_BITS | np.arange(len(padded)), 0),
        longest=longest,
    )


def _numbers(table: pa.Table, name: str) -> Ints:
    return np.asarray(table[name].fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _label_numbers(table: pa.Table, labels: Labels) -> NDArray[np.uint16]:
    names, kinds = (_dictionary(table, name) for name in ("name", "kind"))
    pair = names[0] * len(kinds[1]) + kinds[0]
    numbers = np.zeros(len(names[1]) * len(kinds[1]), np.int64)
    for index in np.flatnonzero(np.bincount(pair, minlength=len(numbers))):
        numbers[index] = labels.number(names[1][index // len(kinds[1])], kinds[1][index % len(kinds[1])])
    # More names than a label can tell apart share the last one: a view of them is a blur all the same.
    result: NDArray[np.uint16] = np.minimum(numbers, np.iinfo(np.uint16).max).astype(np.uint16)[pair]
    return result


def _dictionary(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    """The index of each row in the list of texts; one without a text has an empty one."""
    column = table[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    texts = ["" if text is None else str(text) for text in column.dictionary.to_pylist()]
    return np.asarray(column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False), np.int64), [*texts, ""]


def _with_async_lanes(
    threads: Ints, depths: Ints, starts: Ints, durations: Ints, asynchronous: NDArray[np.bool_]
) -> Ints:
    """Depths in which each asynchronous call has the first lane that is free when it begins."""
    depths = depths.copy()
    rows = np.flatnonzero(asynchronous)
    ends: dict[int, list[int]] = {}
    for row in rows[np.argsort(starts[rows], kind="stable")]:
        lanes = ends.setdefault(int(threads[row]), [])
        begin, end = int(starts[row]), int(starts[row] + durations[row])
        number = next((n for n, free in enumerate(lanes) if free <= begin), len(lanes))
        lanes[number : number + 1] = [end]
        depths[row] = _FIRST_ASYNC + number
    return depths
