"""Start: the state of an allocator when a history begins that does not begin with an empty one.

Nothing in a file holds it. It follows from the end and the events between: a segment was there if it is there at the
end and was not made meanwhile, or was released without having been made; a block lived if it lives at the end and was
not allocated meanwhile, or was freed without having been allocated. What lies between living blocks is free.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from torchreel.reel.allocator_history.actions import FREE_COMPLETED, FREES_BLOCK, SEGMENT_ALLOC, SEGMENT_FREE
from torchreel.reel.allocator_history.blocks import OLD, lives
from torchreel.reel.columns import Ints
from torchreel.simulator.recorded.ranges import Range, old_ranges
from torchreel.simulator.recorded.recorded_history import ACTION, ADDRESS, POOL, SIZE, UNKNOWN, RecordedHistory
from torchreel.simulator.rules import LEAST_BLOCK, MOST_SMALL, SMALL_SEGMENT, round_size


@dataclass
class Segment:
    base: int
    size: int
    page: int
    stream: int
    pool: int
    small: bool


@dataclass
class Block:
    address: int
    size: int
    requested: int
    pending: bool
    exact: bool = True  # the size is the recorded one
    room: int = 0  # how much more of the memory behind it may be its own


@dataclass
class Start:
    segments: list[Segment] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    mapped: list[tuple[int, int]] = field(default_factory=list)
    range_bytes: int | None = None
    """Address space of an expandable segment, if anything tells."""
    flags: dict[int, set[str]] = field(default_factory=dict)
    """What is peculiar of private pools."""

    @property
    def is_empty(self) -> bool:
        return not self.segments and not self.blocks

    @property
    def reserved(self) -> int:
        return sum(size for _, size in self.mapped) + sum(s.size for s in self.segments if not s.page)

    def rows(self) -> tuple[Ints, Ints, Ints]:
        """Segments, blocks and mapped runs as the native model takes them."""
        segments = [(s.base, s.size, s.page, s.stream, s.pool, s.small) for s in self.segments]
        blocks = [(b.address, b.size, b.requested, b.room, b.pending) for b in self.blocks]
        return _matrix(segments, 6), _matrix(blocks, 5), _matrix(self.mapped, 2)


def _matrix(rows: Sequence[tuple[int, ...]], width: int) -> Ints:
    return np.array(rows, np.int64).reshape(len(rows), width)


def rebuild(history: RecordedHistory) -> tuple[Start, Ints]:
    """The start, and the events with the pools of segments filled in where the end tells them."""
    events = history.events.copy()
    blocks = _old_blocks(history)
    native = _old_segments(history, events)
    ranges = old_ranges(history, events, {block.address: block.requested for block in blocks})
    start = Start(flags=_flags(history))
    for base, (size, stream, pool, small) in sorted(native.items()):
        start.segments.append(Segment(base, size, 0, stream, pool, small))
    for old in ranges:
        start.segments.append(Segment(old.base, old.size, old.page, old.stream, old.pool, old.small))
        start.mapped.extend(old.runs)
    start.segments.sort(key=lambda segment: segment.base)
    start.mapped.sort()
    _clip(start, ranges, history)
    start.blocks = sorted(blocks, key=lambda block: block.address)
    _size_blocks(start, history)
    return start, events


def _old_blocks(history: RecordedHistory) -> list[Block]:
    """The blocks that lived when the history began; also those whose alloc it lost."""
    action, address, size = (history.events[:, column] for column in (ACTION, ADDRESS, SIZE))
    found = lives(action, address)
    after_a_free = (found.start == OLD) | np.isin(action[found.start], FREES_BLOCK)
    old: dict[int, Block] = {}
    for life in np.flatnonzero(~found.made & after_a_free).tolist():
        at, row = int(found.address[life]), found.first[life]
        if at not in old:
            old[at] = Block(at, 0, int(size[row]), pending=bool(action[row] == FREE_COMPLETED), exact=False)
    last = found.last_at(np.array([block.address for block in history.blocks], np.int64))
    only_final = []
    for block, life, lives_on in zip(history.blocks, last.tolist(), found.goes_on(last).tolist(), strict=True):
        if not lives_on and block.address not in old:
            only_final.append(Block(block.address, block.size, block.requested, block.pending))
        elif lives_on and not found.made[life] and block.address in old:  # its size is known after all
            old[block.address].size, old[block.address].exact = block.size, True
    return [*old.values(), *only_final]


def _old_segments(history: RecordedHistory, events: Ints) -> dict[int, tuple[int, int, int, bool]]:
    """Size, stream, pool and kind of the segments that were there, expandable ones apart, by their address."""
    native = {
        segment.address: (segment.size, segment.stream, segment.pool, segment.small)
        for segment in history.segments
        if not segment.expandable
    }
    for index in np.flatnonzero(np.isin(events[:, ACTION], (SEGMENT_ALLOC, SEGMENT_FREE)))[::-1].tolist():
        action, address, size, stream, pool = events[index].tolist()
        if action == SEGMENT_ALLOC:
            known = native.pop(address, None)
            if pool == UNKNOWN and (known or len(history.pools) == 1):
                events[index, POOL] = known[2] if known else 0
        elif size > 0:
            native[address] = (size, stream, pool, size <= SMALL_SEGMENT)
    return {address: (size, stream, max(pool, 0), small) for address, (size, stream, pool, small) in native.items()}


def _flags(history: RecordedHistory) -> dict[int, set[str]]:
    """What the end tells of private pools: blocks are handed out whole, memory is not expandable though all else is."""
    flags: dict[int, set[str]] = {}
    starts = [segment.address for segment in history.segments]
    for segment in history.segments:
        if segment.pool and history.conf.expandable_segments and not segment.expandable:
            flags.setdefault(segment.pool, set()).add("own_device")
    for block in history.blocks:
        index = bisect_right(starts, block.address) - 1
        if index < 0 or not (segment := history.segments[index]).pool:
            continue
        slack = block.size - round_size(history.conf, block.requested)
        oversize = history.conf.max_split_size is not None and block.size >= history.conf.max_split_size
        if (slack > MOST_SMALL and not oversize) or (slack >= LEAST_BLOCK and segment.small):
            flags.setdefault(segment.pool, set()).add("no_split")
    return flags


def _clip(start: Start, ranges: list[Range], history: RecordedHistory) -> None:
    """Address spaces do not overlap, and all are of about the same size: the closest neighbours bound it."""
    if history.total:
        start.range_bytes = history.total + history.total // 8
    bases = [segment.base for segment in start.segments]
    for index, segment in enumerate(start.segments):
        if not segment.page or index + 1 == len(bases):
            continue
        room = (bases[index + 1] - segment.base) // segment.page * segment.page
        if room < segment.size:
            segment.size = room
            start.range_bytes = min(start.range_bytes or room, room)
    if start.range_bytes is None:
        return
    extents = {old.base: max(end for _, end in old.ends()) - old.base for old in ranges}
    for segment in start.segments:
        if segment.page:
            least = extents.get(segment.base, 0)
            size = -(-max(start.range_bytes, least) // segment.page) * segment.page
            segment.size = min(segment.size, size)


def _size_blocks(start: Start, history: RecordedHistory) -> None:
    """Sizes of the blocks of which only the request is known."""
    bases = [segment.base for segment in start.segments]
    runs = [address for address, _ in start.mapped]
    for index, block in enumerate(start.blocks):
        if block.exact:
            continue
        at = bisect_right(bases, block.address) - 1
        size = round_size(history.conf, block.requested)
        block.size = size
        if at < 0:
            continue
        segment = start.segments[at]
        end = segment.base + segment.size
        if segment.page:
            run = bisect_right(runs, block.address) - 1
            end = sum(start.mapped[run]) if run >= 0 else end
        if index + 1 < len(start.blocks):
            end = min(end, start.blocks[index + 1].address)
        _fit(block, size, end - block.address, segment, history, start.flags)


def _fit(
    block: Block, size: int, gap: int, segment: Segment, history: RecordedHistory, flags: dict[int, set[str]]
) -> None:
    """A block's size within the gap up to the next one: in the large pool it may have more than was asked for.

    No block of that pool is of 1 MiB or less, so a rest of that size is its own. Where more is left, up to 1 MiB of it
    may be.
    """
    limit = history.conf.max_split_size
    whole = "no_split" in flags.get(segment.pool, ()) or (limit is not None and size >= limit)
    if gap < size:
        block.size = max(gap, 0)
    elif segment.page or segment.small:
        block.size = gap if whole and segment.small else size
    elif whole or gap - size <= MOST_SMALL:
        block.size = gap
    else:
        block.room = min(MOST_SMALL, gap - size - MOST_SMALL - LEAST_BLOCK)
