"""Range: an expandable segment that was there when a history began: address space with memory in parts of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from torchreel.reel.allocator_history.actions import SEGMENT_MAP, SEGMENT_UNMAP
from torchreel.reel.columns import Ints
from torchreel.simulator.recorded.recorded_history import ACTION, POOL, UNKNOWN, RecordedHistory
from torchreel.simulator.rules import MOST_SMALL, SMALL_SEGMENT, round_size

_LARGEST = 1 << 44  # more address space than any device's memory needs

Kind = tuple[int, int, bool]  # stream, pool, small


@dataclass
class Range:
    base: int
    size: int
    page: int
    stream: int
    pool: int
    small: bool
    runs: list[tuple[int, int]] = field(default_factory=list)
    """Address and size of what is mapped."""

    def ends(self) -> list[tuple[int, int]]:
        return [(address, address + size) for address, size in self.runs]


class _Runs:
    """Mapped memory by address, each run with its kind."""

    def __init__(self) -> None:
        self.runs: dict[int, tuple[int, Kind]] = {}  # start -> end, kind

    def add(self, start: int, end: int, kind: Kind) -> None:
        for other in sorted(self.runs):
            other_end, other_kind = self.runs[other]
            if other_kind == kind and other <= end and start <= other_end:
                start, end = min(start, other), max(end, other_end)
                del self.runs[other]
        self.runs[start] = (end, kind)

    def remove(self, start: int, end: int) -> Kind | None:
        """Returns the kind of what was there."""
        kind = None
        for other in sorted(self.runs):
            other_end, other_kind = self.runs[other]
            if other < end and start < other_end:
                kind = other_kind
                del self.runs[other]
                if other < start:
                    self.runs[other] = (start, kind)
                if end < other_end:
                    self.runs[end] = (other_end, kind)
        return kind

    def forget_unknown(self) -> None:
        """What nothing tells to be of a private pool is of the default one."""
        for start, (end, (stream, pool, small)) in list(self.runs.items()):
            if pool == UNKNOWN:
                del self.runs[start]
                self.add(start, end, (stream, 0, small))

    def touching(self, start: int, end: int, stream: int) -> Kind | None:
        for other, (other_end, kind) in self.runs.items():
            if other <= end and start <= other_end and kind[0] == stream:
                return kind
        return None


def old_ranges(history: RecordedHistory, events: Ints, old_blocks: Mapping[int, int]) -> list[Range]:
    """The ranges that were there. Fills in the pools of the events, where the end tells them."""
    indices = np.flatnonzero(np.isin(events[:, ACTION], (SEGMENT_MAP, SEGMENT_UNMAP))).tolist()
    runs = _Runs()
    for segment in history.segments:
        if segment.expandable:
            kind = (segment.stream, segment.pool, segment.small)
            runs.add(segment.address, segment.address + segment.size, kind)
    for index in reversed(indices):
        action, address, size, stream, pool = events[index].tolist()
        if action == SEGMENT_MAP:
            known = runs.remove(address, address + size)
            if pool == UNKNOWN and (known or len(history.pools) == 1):
                events[index, POOL] = known[1] if known else 0
        elif size > 0:
            near = runs.touching(address, address + size, stream)
            small = _is_small(history, address, size, old_blocks)
            runs.add(address, address + size, near or (stream, pool, small))
    runs.forget_unknown()
    return _grouped(history, runs, [events[index].tolist() for index in indices])


def _is_small(history: RecordedHistory, address: int, size: int, old_blocks: Mapping[int, int]) -> bool:
    """Whether memory that was unmapped was that of small blocks: by its pages, else by what lay in it."""
    if size % history.conf.large_segment_size:
        return True
    inside = [asked for at, asked in old_blocks.items() if address <= at < address + size]
    return bool(inside) and max(round_size(history.conf, asked) for asked in inside) <= MOST_SMALL


def _grouped(history: RecordedHistory, runs: _Runs, maps: list[list[int]]) -> list[Range]:
    """Runs of one kind with nothing of another kind between them lie in one range."""
    ranges: list[Range] = []
    native = {segment.address: None for segment in history.segments if not segment.expandable}
    anchors = sorted([*runs.runs, *native])
    for address in anchors:
        if address not in runs.runs:
            ranges.append(Range(address, 0, 0, 0, 0, False))  # ends whatever came before it
            continue
        end, (stream, pool, small) = runs.runs[address]
        last = ranges[-1] if ranges else None
        near = last is not None and end - last.base <= _LARGEST
        if last and near and last.page and (last.stream, last.pool, last.small) == (stream, pool, small):
            last.runs.append((address, end - address))
        else:
            page = SMALL_SEGMENT if small else history.conf.large_segment_size
            ranges.append(
                Range(address, _LARGEST // page * page, page, stream, pool, small, [(address, end - address)])
            )
    ranges = [one for one in ranges if one.page]
    _lower_bases(ranges, runs, maps)
    return ranges


def _lower_bases(ranges: list[Range], runs: _Runs, maps: list[list[int]]) -> None:
    """Let ranges begin where they do: a hole below the first run shows when it is filled.

    It is filled before the range grows at its end, so what is mapped below while the range lives belongs to it. Once
    all of it is unmapped it is gone.
    """
    alive = {(one.stream, one.pool, one.small): one for one in reversed(ranges)}
    mapped = {kind: sum(size for _, size in one.runs) for kind, one in alive.items()}
    for action, address, size, stream, pool in maps:
        if action == SEGMENT_UNMAP:
            kind = runs.remove(address, address + size)
            if kind in alive:
                mapped[kind] -= size
                if mapped[kind] <= 0:
                    del alive[kind]
            continue
        kind = _kind_of(alive, address, stream, pool, size <= SMALL_SEGMENT)
        runs.add(address, address + size, kind)
        if kind in alive:
            mapped[kind] += size
            if not any(address <= other.base < alive[kind].base for other in ranges):
                alive[kind].base = min(alive[kind].base, address)


def _kind_of(alive: Mapping[Kind, Range], address: int, stream: int, pool: int, small: bool) -> Kind:
    """The kind of what is mapped; where the file does not name the pool, that of the closest range."""
    if pool != UNKNOWN:
        return (stream, pool, small)
    near = [kind for kind in alive if (kind[0], kind[2]) == (stream, small)]
    return min(near, key=lambda kind: abs(alive[kind].base - address), default=(stream, 0, small))
