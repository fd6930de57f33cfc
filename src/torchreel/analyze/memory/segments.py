"""Segments and blocks at any instant: the allocator's state, replayed from its final state and its events.

Ranges of addresses are walked backwards from the segments of the final state, so that a history that begins in the
middle of a run is as good as a whole one. Where the allocator has no segments, as the system's, blocks that lie near
one another make a *region*: what is between them is not known to be anybody's.

The events tell what a program asked for, and the final state what a block took. A block that was freed before the end
is drawn as large as it must have been: rounded as its allocator rounds, with a rest that is too small to be split off.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel.analyze.memory.fragmentation import Pool, returnable
from torchreel.analyze.memory.model.device import DeviceMemory
from torchreel.reel.allocator_history import OLD
from torchreel.reel.allocator_history.actions import CODES, OTHER, RESERVES, SEGMENT_EVENTS
from torchreel.reel.columns import NOTHING, Ints, Mask, ints, texts, translate

SMALL, LARGE, UNKNOWN = range(3)
KINDS = ("small", "large", "unknown")
FREE, USED, PENDING = range(3)
STATES = ("free", "allocated", "pending")  # pending: freed, and still in use by a stream

_ROUNDING = 512  # bytes, of CUDA's caching allocator
_CPU_ROUNDING, _CPU_HEADER = 64, 64  # of torchreel's own for CPU tensors
_SMALL_SEGMENT = 2 << 20
_LARGEST_SMALL = 1 << 20  # bytes: no block of the large pool is smaller
_NEAR = 1 << 20  # bytes between blocks of one region
_HIGHEST = 1 << 62  # no address of a sound file is above
_MOST_BYTES = 1 << 50  # and no size


@dataclass(frozen=True)
class SegmentLives:
    """One item per range of addresses that was held. Positions are as those of blocks: start <= position < end."""

    address: Ints
    size: Ints
    start: Ints
    end: Ints
    stream: Ints
    kind: Ints  # of KINDS
    expandable: Mask
    pool: Ints  # of `pools`, or NOTHING
    pools: list[str]


@dataclass(frozen=True)
class Segments:
    """The segments of one instant, by address."""

    address: Ints
    size: Ints
    stream: Ints
    kind: Ints  # of KINDS
    expandable: Mask
    is_region: Mask  # not a segment: blocks of an allocator that has none, or outside of those that are known
    pool: list[str | None]

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True)
class Pieces:
    """The parts of all segments, by address: blocks, and what is free between them."""

    segment: Ints  # place of its segment
    address: Ints
    size: Ints  # bytes that it takes
    requested: Ints  # bytes that the program asked for; 0 for a free piece
    state: Ints  # of STATES
    block: Ints  # number of the block in the history, or NOTHING for a free piece
    is_exact: Mask  # whether its size is recorded; else it is what the allocator's rules give

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True)
class AllocatorState:
    """What an allocator held after an event."""

    position: int
    segments: Segments
    pieces: Pieces


def segment_lives(memory: DeviceMemory) -> SegmentLives:
    """Every range of addresses that the allocator held, from when to when. Read once for each device."""
    known: SegmentLives | None = memory.__dict__.get("_segment_lives")
    if known is None:
        known = memory.__dict__["_segment_lives"] = _Walk(memory).lives()
    return known


def allocator_state(memory: DeviceMemory, position: int) -> AllocatorState:
    """The segments and their pieces after an event; -1 is before all of them."""
    position = min(max(position, OLD), memory.history.events - 1)
    segments = _segments_at(segment_lives(memory), position)
    blocks = memory.history.blocks
    alive = np.flatnonzero((blocks.start <= position) & (blocks.done > position) & has_address(blocks.addr))
    alive = alive[np.argsort(blocks.addr[alive], kind="stable")]
    segments = _with_regions(segments, blocks.addr[alive], np.minimum(blocks.size[alive], _MOST_BYTES))
    pieces = _pieces(memory, segments, alive, position)
    return AllocatorState(position, segments, pieces)


def has_address(address: Ints) -> Mask:
    """Whether blocks can be drawn at all: some recordings have no addresses."""
    found: Mask = (address >= 0) & (address <= _HIGHEST)
    return found


class _Walk:
    """Walks back from the final state, event by event, and cuts ranges where they were mapped and unmapped."""

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._bases: list[int] = []
        self._live: dict[int, _Range] = {}
        self._done: list[tuple[int, int, int, _Range]] = []
        self._pools: dict[str, int] = {}

    def lives(self) -> SegmentLives:
        for found in self._final():
            self._cut(found.address, found.size, found.end, None)  # what a damaged file has twice
            self._add(found)
        for event in reversed(list(self._events())):
            at, grows, found = event
            self._cut(found.address, found.size, at, found if grows else None)
            if not grows:
                self._add(found)
        for found in self._live.values():
            self._done.append((found.address, found.size, OLD, found))
        self._done.sort(key=lambda life: (life[0], life[2]))
        return self._columns()

    def _columns(self) -> SegmentLives:
        ranges = [life[3] for life in self._done]
        return SegmentLives(
            address=np.array([life[0] for life in self._done], np.int64),
            size=np.array([life[1] for life in self._done], np.int64),
            start=np.array([life[2] for life in self._done], np.int64),
            end=np.array([one.end for one in ranges], np.int64),
            stream=np.array([one.stream for one in ranges], np.int64),
            kind=np.array([one.kind for one in ranges], np.int64),
            expandable=np.array([one.expandable for one in ranges], bool),
            pool=np.array([one.pool for one in ranges], np.int64),
            pools=list(self._pools),
        )

    def _final(self) -> Iterator[_Range]:
        table = self._memory.history.segments
        kinds, words = texts(table, "type")
        kind = translate(kinds, words, {"small": SMALL, "large": LARGE}, UNKNOWN)
        expandable = table["expandable"].fill_null(False).to_numpy(zero_copy_only=False).astype(bool)
        columns = (ints(table, "address"), ints(table, "size"), ints(table, "stream"), kind, expandable)
        rows = zip(*(column.tolist() for column in columns), table["pool"].to_pylist(), strict=True)
        for address, size, stream, is_kind, grows, pool in rows:
            if _is_sound(address, size):
                yield _Range(address, size, self._memory.history.events, stream, is_kind, grows, self._pool(pool))

    def _events(self) -> Iterator[tuple[int, bool, _Range]]:
        """Position, whether memory was taken, and the range."""
        import pyarrow.compute as pc  # slow to import, and few questions need it

        history = self._memory.history
        if not history.reserves:
            return
        table = self._memory.run.reel.table("allocs", ["id", "device", "action", "addr", "size", "stream", "pool"])
        names = pc.cast(table["device"], pa.string()).fill_null("")
        mine = pc.and_(pc.equal(table["process"], history.process), pc.equal(names, history.device))
        table = table.filter(mine)
        table = table.take(np.argsort(ints(table, "id"), kind="stable"))
        codes, words = texts(table, "action")
        action = translate(codes, words, CODES, OTHER)
        mapped = np.array([*(word in ("segment_map", "segment_unmap") for word in words), False], bool)[codes]
        rows = np.flatnonzero(np.isin(action, SEGMENT_EVENTS))
        few = table.take(rows)
        columns = (
            rows,
            np.isin(action[rows], RESERVES),
            mapped[rows],
            *(ints(few, name) for name in ("addr", "size", "stream")),
        )
        pools = few["pool"].to_pylist()
        for (at, grows, pages, address, size, stream), pool in zip(
            zip(*(column.tolist() for column in columns), strict=True), pools, strict=True
        ):
            if _is_sound(address, size):
                kind = UNKNOWN if pages else SMALL if size <= _SMALL_SEGMENT else LARGE
                yield at, grows, _Range(address, size, at, stream, kind, pages, self._pool(pool))

    def _pool(self, text: str | None) -> int:
        return NOTHING if text is None else self._pools.setdefault(text, len(self._pools))

    def _add(self, found: _Range) -> None:
        bisect.insort(self._bases, found.address)
        self._live[found.address] = found

    def _cut(self, address: int, size: int, at: int, maker: _Range | None) -> None:
        """Before an event, what it took was not there: the lives of these addresses begin with it."""
        end = address + size
        index = max(bisect.bisect_right(self._bases, address) - 1, 0)
        while index < len(self._bases) and self._bases[index] < end:
            found = self._live[self._bases[index]]
            first, last = max(found.address, address), min(found.address + found.size, end)
            if first >= last:
                index += 1
                continue
            del self._live[self._bases.pop(index)]
            if at < found.end:
                self._done.append((first, last - first, at, found if maker is None else found.told_by(maker)))
            for begin, stop in ((found.address, first), (last, found.address + found.size)):
                if begin < stop:
                    self._bases.insert(index, begin)
                    self._live[begin] = found.part(begin, stop - begin)
                    index += 1


@dataclass(frozen=True)
class _Range:
    address: int
    size: int
    end: int
    stream: int
    kind: int
    expandable: bool
    pool: int

    def part(self, address: int, size: int) -> _Range:
        return _Range(address, size, self.end, self.stream, self.kind, self.expandable, self.pool)

    def told_by(self, maker: _Range) -> _Range:
        """With what only the event that made it knows."""
        kind = maker.kind if self.kind == UNKNOWN else self.kind
        stream = maker.stream if self.stream == NOTHING else self.stream
        pool = maker.pool if self.pool == NOTHING else self.pool
        expandable = self.expandable or maker.expandable
        return _Range(self.address, self.size, self.end, stream, kind, expandable, pool)


def _is_sound(address: int, size: int) -> bool:
    return 0 <= address <= _HIGHEST and 0 < size <= _MOST_BYTES


def _segments_at(lives: SegmentLives, position: int) -> Segments:
    """Pages of an expandable segment that lie side by side are one segment."""
    here = np.flatnonzero((lives.start <= position) & (lives.end > position))
    address, size = lives.address[here], lives.size[here]
    expandable, stream = lives.expandable[here], lives.stream[here]
    joined = np.zeros(len(here), bool)
    joined[1:] = expandable[1:] & expandable[:-1] & (stream[1:] == stream[:-1])
    joined[1:] &= address[:-1] + size[:-1] == address[1:]
    first = np.flatnonzero(~joined)
    pools = [*lives.pools, None]
    return Segments(
        address=address[first],
        size=np.add.reduceat(size, first) if len(first) else size,
        stream=stream[first],
        kind=np.minimum.reduceat(lives.kind[here], first) if len(first) else lives.kind[here],
        expandable=expandable[first],
        is_region=np.zeros(len(first), bool),
        pool=[pools[number] for number in lives.pool[here][first]],
    )


def _with_regions(segments: Segments, address: Ints, size: Ints) -> Segments:
    """Add regions for the blocks that lie in no segment."""
    outside = _segment_of(segments, address) == NOTHING
    if not outside.any():
        return segments
    address, end = address[outside], address[outside] + np.maximum(size[outside], 1)
    reach = np.maximum.accumulate(end)
    breaks = np.ones(len(address), bool)
    breaks[1:] = address[1:] - reach[:-1] > _NEAR
    if len(segments):  # a region ends where a segment lies between
        after = np.searchsorted(segments.address, address, side="right")
        breaks[1:] |= after[1:] != after[:-1]
    first = np.flatnonzero(breaks)
    last = np.append(first[1:], len(address)) - 1
    count = len(first)
    order = np.argsort(np.concatenate((segments.address, address[first])), kind="stable")
    pool = [*segments.pool, *([None] * count)]
    return Segments(
        address=np.concatenate((segments.address, address[first]))[order],
        size=np.concatenate((segments.size, reach[last] - address[first]))[order],
        stream=np.concatenate((segments.stream, np.full(count, NOTHING)))[order],
        kind=np.concatenate((segments.kind, np.full(count, UNKNOWN)))[order],
        expandable=np.concatenate((segments.expandable, np.zeros(count, bool)))[order],
        is_region=np.concatenate((segments.is_region, np.ones(count, bool)))[order],
        pool=[pool[n] for n in order],
    )


def _segment_of(segments: Segments, address: Ints) -> Ints:
    """The place of the segment in which each address lies, or NOTHING."""
    if not len(segments):
        return np.full(len(address), NOTHING, np.int64)
    place = np.searchsorted(segments.address, address, side="right") - 1
    inside = (place >= 0) & (address < segments.address[place] + segments.size[place])
    return np.where(inside, place, NOTHING)


def _pieces(memory: DeviceMemory, segments: Segments, alive: Ints, position: int) -> Pieces:
    blocks = memory.history.blocks
    address, requested = blocks.addr[alive], blocks.size[alive]
    place = _segment_of(segments, address)
    limit = segments.address[place] + segments.size[place] if len(segments) else address
    same = np.zeros(len(alive), bool)
    same[:-1] = place[1:] == place[:-1]
    room = np.where(same, np.append(address[1:], 0), limit) - address
    size, is_exact = _sizes(memory, alive)
    size = np.minimum(size, room)
    rest = room - size
    fixed = (segments.kind == LARGE) & ~segments.expandable & ~segments.is_region
    unsplit = fixed[place] if len(segments) else np.zeros(0, bool)
    size = np.where(~is_exact & unsplit & (rest <= _LARGEST_SMALL), room, size)
    pending = blocks.end[alive] <= position
    free_place, free_address, free_size = _gaps(segments, place, address, size)
    count = len(free_place)
    nothing, nowhere = np.zeros(count, np.int64), np.full(count, NOTHING, np.int64)
    order = np.argsort(np.append(address, free_address), kind="stable")
    return Pieces(
        segment=np.append(place, free_place)[order],
        address=np.append(address, free_address)[order],
        size=np.append(size, free_size)[order],
        requested=np.append(requested, nothing)[order],
        state=np.append(np.where(pending, PENDING, USED), nothing)[order],
        block=np.append(alive, nowhere)[order],
        is_exact=np.append(is_exact, np.ones(count, bool))[order],
    )


def _sizes(memory: DeviceMemory, alive: Ints) -> tuple[Ints, Mask]:
    """What each block takes: as the final state has it, else as its allocator rounds; and whether that is recorded."""
    history = memory.history
    requested = np.minimum(history.blocks.size[alive], _MOST_BYTES)
    if not history.reserves:
        return requested, np.ones(len(alive), bool)
    if history.device == "cpu":
        rounded = -(-(requested + _CPU_HEADER) // _CPU_ROUNDING) * _CPU_ROUNDING
    else:
        rounded = np.maximum(-(-requested // _ROUNDING), 1) * _ROUNDING
    final = history.final
    order = np.argsort(ints(final, "address"), kind="stable")
    bases, sizes = ints(final, "address")[order], ints(final, "size")[order]
    if not len(bases):
        return rounded, np.zeros(len(alive), bool)
    row = np.minimum(np.searchsorted(bases, history.blocks.addr[alive]), len(bases) - 1)
    survives = (bases[row] == history.blocks.addr[alive]) & (history.blocks.done[alive] >= history.events)
    survives &= sizes[row] > 0
    return np.where(survives, sizes[row], rounded), survives


def _gaps(segments: Segments, place: Ints, address: Ints, size: Ints) -> tuple[Ints, Ints, Ints]:
    """What is free before, between and after the blocks of each segment. A region has nothing that is free."""
    count = len(segments)
    order = np.argsort(np.append(place, np.arange(count)), kind="stable")  # blocks of a segment, then its end
    where = np.append(place, np.arange(count))[order]
    starts = np.append(address, segments.address + segments.size)[order]
    ends = np.append(address + size, segments.address + segments.size)[order]
    previous = np.concatenate(([0], ends[:-1]))
    first = np.ones(len(where), bool)
    first[1:] = where[1:] != where[:-1]
    begin = np.where(first, segments.address[where], previous) if count else starts
    free = np.flatnonzero((starts > begin) & ~segments.is_region[where]) if count else np.zeros(0, np.int64)
    return where[free], begin[free], (starts - begin)[free]


def usage(state: AllocatorState, kind: str | None = None) -> Pool:
    """The sums of a state, in the words of `torchreel memory`'s fragmentation; of small or large segments alone."""
    segments, pieces = state.segments, state.pieces
    is_small = segments.kind == SMALL
    chosen = ~segments.is_region & (kind is None or (is_small if kind == "small" else ~is_small))
    mine = chosen[pieces.segment] if len(segments) else np.zeros(len(pieces), bool)
    free, used = mine & (pieces.state == FREE), mine & (pieces.state == USED)
    back = returnable(
        np.where(is_small, 0, 1),
        segments.expandable,
        segments.address,
        pieces.segment,
        pieces.address,
        pieces.size,
        pieces.state > FREE,
    )
    return Pool(
        name=kind or "all",
        segments=int(chosen.sum()),
        reserved=int(segments.size[chosen].sum()),
        allocated=int(pieces.size[used].sum()),
        pending=int(pieces.size[mine & (pieces.state == PENDING)].sum()),
        rounding=int(np.maximum(pieces.size - pieces.requested, 0)[used].sum()),
        split=int((pieces.size - back)[free].sum()),
        cached=int(back[free].sum()),
        largest_free=int(pieces.size[free].max(initial=0)),
    )
