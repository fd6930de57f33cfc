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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_BLOCK = 16
_INDEX_BITS = 24
_FIRST_ASYNC = 1 << 16
"""Depths from here on are lanes of asynchronous calls."""


class Labels:
    """Names and kinds of calls by number, the same for all processes of a reel."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._all: list[tuple[str, str]] = []

    def number(self, name: str, kind: str) -> int:
        number = self._numbers.setdefault((name, kind), len(self._all))
        if number == len(self._all):
            self._all.append((name, kind))
        return number

    def __getitem__(self, number: int) -> tuple[str, str]:
        return self._all[number]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)


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

    def rows(self) -> Rows:
        """Its calls again, to be sorted anew."""
        threads, depths = (np.full(len(self), number, np.int64) for number in (self.thread, self.depth))
        return Rows(threads, depths, self.starts, np.diff(self.sums), self.ids, self.labels)

    def find(self, number: int) -> int | None:
        """Where the call with this id is. Ids grow with time, but for calls that come from other tools."""
        at = int(self.ids.searchsorted(number))
        if at < len(self) and self.ids[at] == number:
            return at
        found = np.flatnonzero(self.ids == number)
        return int(found[0]) if len(found) else None

    def beginning(self, moment: int) -> int:
        """Which call is the last that began at a moment or before."""
        return int(self.starts.searchsorted(moment, "right")) - 1


class LaneBuilder:
    """The lanes of one process, from rows of `ops` as they come; a row costs the same, however many came before."""

    def __init__(self, process: int, origin: int, labels: Labels) -> None:
        self._process = process
        self._origin = origin
        self._labels = labels
        self._calls: dict[tuple[int, int], _Calls] = {}
        self._asynchronous = Rows.none()

    def add(self, table: pa.Table) -> int | None:
        """More rows: columns COLUMNS of `ops`. Gives when the earliest of them began."""
        if not table.num_rows:
            return None
        rows = Rows.of(table, self._origin, self._labels)
        earliest = int(rows.starts.min())
        asynchronous = np.asarray(table["async"].fill_null(False).to_numpy(zero_copy_only=False), bool)
        if asynchronous.any():
            self._asynchronous = self._asynchronous.with_(rows.take(asynchronous))
            rows = rows.take(~asynchronous)
        self._sort_in(rows)
        return earliest

    def _sort_in(self, rows: Rows) -> None:
        if not len(rows):
            return
        # By lane, and within it as they come.
        first, deepest = int(rows.threads.min()), int(rows.depths.max()) + 1
        which: NDArray[Any] = (rows.threads - first) * deepest + rows.depths
        if is_small := which.max() < 1 << 16:
            which = which.astype(np.uint16)  # such numbers are sorted by counting
        order = np.argsort(which, kind="stable")
        lanes, begins = _counted(which) if is_small else np.unique(which[order], return_index=True)
        for lane, begin, end in zip(lanes.tolist(), begins, [*begins[1:], len(order)], strict=True):
            self._add_to((first + lane // deepest, lane % deepest), rows.take(order[begin:end]))

    def _add_to(self, key: tuple[int, int], rows: Rows) -> None:
        calls = self._calls.get(key)
        if calls is None or not calls.are_before(rows):  # such as come from other tools may be in any order
            rows = (rows if calls is None else calls.lane(0, 0, 0).rows().with_(rows)).sorted()
            calls = self._calls[key] = _Calls()
        calls.add(rows)

    def lanes(self) -> dict[tuple[int, int], Lane]:
        """By thread and depth. Lanes that were given before stay as they are."""
        found = {key: calls.lane(self._process, *key) for key, calls in self._calls.items()}
        if len(self._asynchronous):
            rows = self._asynchronous.sorted()
            depths = _first_free(rows)
            for thread, depth in sorted(set(zip(rows.threads.tolist(), depths.tolist(), strict=True))):
                of_lane = rows.take((rows.threads == thread) & (depths == depth))
                found[thread, depth] = lane_of(self._process, thread, depth, of_lane)
        return found


def _counted(which: NDArray[Any]) -> tuple[Ints, Ints]:
    """The numbers that are there, and where each begins once they are sorted."""
    counts = np.bincount(which)
    lanes = np.flatnonzero(counts)
    return lanes, np.append(0, np.cumsum(counts[lanes]))[:-1]


COLUMNS = ["id", "thread", "name", "kind", "start_ns", "dur_ns", "depth", "async"]


@dataclass(frozen=True)
class Rows:
    """Calls in any order."""

    threads: Ints
    depths: Ints
    starts: Ints
    durations: Ints
    ids: Ints
    labels: NDArray[np.uint16]

    @staticmethod
    def none() -> Rows:
        empty = np.empty(0, np.int64)
        return Rows(empty, empty, empty, empty, empty, np.empty(0, np.uint16))

    @staticmethod
    def of(table: pa.Table, origin: int, labels: Labels) -> Rows:
        threads, depths, starts, durations, ids = (
            _numbers(table, name) for name in ("thread", "depth", "start_ns", "dur_ns", "id")
        )
        return Rows(
            threads,
            np.clip(depths, 0, _FIRST_ASYNC - 1),
            starts - origin,
            np.maximum(durations, 0),
            ids,
            _label_numbers(table, labels),
        )

    def __len__(self) -> int:
        return len(self.starts)

    def _columns(self) -> tuple[Any, ...]:
        return (self.threads, self.depths, self.starts, self.durations, self.ids, self.labels)

    def take(self, which: Any) -> Rows:
        return Rows(*(column[which] for column in self._columns()))

    def with_(self, more: Rows) -> Rows:
        pairs = zip(self._columns(), more._columns(), strict=True)
        return Rows(*(np.concatenate(pair) for pair in pairs))

    def sorted(self) -> Rows:
        return self.take(np.argsort(self.starts, kind="stable"))


class _Growing:
    """An array to which values are added; what was given of it before stays valid."""

    def __init__(self, kind: Any) -> None:
        self._kept: NDArray[Any] = np.empty(64, kind)
        self._length = 0

    @property
    def values(self) -> NDArray[Any]:
        return self._kept[: self._length]

    def add(self, values: Any, at: int | None = None) -> None:
        """At the end, or instead of all from a place on: then the old values stay with whoever has them."""
        begin = self._length if at is None else at
        end = begin + len(values)
        if end > len(self._kept) or begin < self._length:
            size = len(self._kept) if end <= len(self._kept) else max(end, len(self._kept) * 5 // 4)
            larger = np.empty(size, self._kept.dtype)
            larger[:begin] = self._kept[:begin]
            self._kept = larger
        self._kept[begin:end] = values
        self._length = end


class _Calls:
    """The calls of one lane so far."""

    def __init__(self) -> None:
        self._starts = _Growing(np.int64)
        self._sums = _Growing(np.int64)
        self._sums.add([0])
        self._ids = _Growing(np.int32)
        self._labels = _Growing(np.uint16)
        self._most = _Growing(np.int64)
        self._longest = _Growing(np.int32)

    def are_before(self, rows: Rows) -> bool:
        """Whether rows, in their order, follow all that is here."""
        return bool(rows.starts[0] >= self._starts.values[-1]) and not (np.diff(rows.starts) < 0).any()

    def add(self, rows: Rows) -> None:
        """Rows in the order of their starts, after all that is here."""
        first = len(self._starts.values) // _BLOCK  # the block that is not full
        self._starts.add(rows.starts)
        self._sums.add(self._sums.values[-1] + np.cumsum(rows.durations))
        if self._ids.values.dtype == np.int32 and rows.ids.max() > np.iinfo(np.int32).max:
            wide = _Growing(np.int64)
            wide.add(self._ids.values)
            self._ids = wide
        self._ids.add(rows.ids)
        self._labels.add(rows.labels)
        self._add_blocks(first)

    def _add_blocks(self, first: int) -> None:
        sums = self._sums.values
        durations = np.diff(sums[first * _BLOCK :])
        padded = np.pad(durations, (0, -len(durations) % _BLOCK)).reshape(-1, _BLOCK)
        numbers = first + np.arange(len(padded))
        most = np.minimum(padded.max(1), (1 << (63 - _INDEX_BITS)) - 1)
        self._longest.add((padded.argmax(1) + _BLOCK * numbers).astype(np.int32), at=first)
        # One more than there are blocks: for the end.
        self._most.add(np.append(most << _INDEX_BITS | numbers, 0), at=first)

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


def lane_of(process: int, thread: int, depth: int, rows: Rows) -> Lane:
    """The lane of calls in the order of their starts."""
    calls = _Calls()
    calls.add(rows)
    return calls.lane(process, thread, depth)


def _first_free(rows: Rows) -> Ints:
    """Depths in which each asynchronous call, in the order of their starts, has the first lane that is free."""
    depths = np.empty(len(rows), np.int64)
    ends: dict[int, list[int]] = {}
    calls = zip(rows.threads.tolist(), rows.starts.tolist(), rows.durations.tolist(), strict=True)
    for row, (thread, begin, duration) in enumerate(calls):
        lanes = ends.setdefault(thread, [])
        number = next((n for n, free in enumerate(lanes) if free <= begin), len(lanes))
        lanes[number : number + 1] = [begin + duration]
        depths[row] = _FIRST_ASYNC + number
    return depths


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
