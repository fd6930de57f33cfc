"""The program of a recorded history: what was asked of the allocator, without what it made of it."""

from __future__ import annotations

from bisect import bisect_right

from torchreel.allocator.actions import (
    ALLOC,
    EMPTY_CACHE,
    FREE,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    PREEXISTING,
    RELEASE_POOL,
    SEGMENT_ALLOC,
    SEGMENT_EVENTS,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
)
from torchreel.allocator.history import ACTION, ADDRESS, POOL, SIZE, STREAM, UNKNOWN, History, Ints
from torchreel.allocator.program import Columns, Program
from torchreel.allocator.rules import MOST_SMALL, SMALL_SEGMENT, round_size, version_of
from torchreel.allocator.start import Start, rebuild

_RELEASES = (SEGMENT_FREE, SEGMENT_UNMAP)
_ACQUISITIONS = (SEGMENT_ALLOC, SEGMENT_MAP)


def program_of_history(history: History) -> Program:
    """What a recorded program did: its requests and frees, and where its user emptied the cache.

    A history that begins mid-run is preceded by the blocks that lived then, in the order of their addresses: how they
    came to lie where they lay is in no file. Releases that made room for a request are left out: an allocator with
    other settings decides anew. A request that failed is made again; if it is met now, its block lives to the end.
    """
    start, events = rebuild(history)
    replay = _Replay(history, start, events)
    replay.run()
    return Program(
        history.device,
        **replay.columns.arrays(),
        pools=history.pools,
        flags=start.flags,
        conf=history.conf,
        torch_version=version_of(history.torch_version) if history.torch_version else history.dated[1],
        total=history.total,
        fraction=history.fraction,
        recorded_peak=history.peak_reserved() if history.segments or history.count(*SEGMENT_EVENTS) else None,
        notes=tuple(replay.notes(history.count(OOM))),
    )


class _Pools:
    """Which pool an address lies in, as segments come and go: older files do not say it of requests."""

    def __init__(self, start: Start) -> None:
        self.bases = [segment.base for segment in start.segments]
        self.pools = {segment.base: segment.pool for segment in start.segments}

    def of(self, address: int) -> int:
        place = bisect_right(self.bases, address) - 1
        return self.pools[self.bases[place]] if place >= 0 else 0

    def add(self, base: int, pool: int) -> None:
        if base not in self.pools:
            self.bases.insert(bisect_right(self.bases, base), base)
        self.pools[base] = max(pool, 0)


class _Replay:
    def __init__(self, history: History, start: Start, events: Ints) -> None:
        self.history = history
        self.columns = Columns()
        self.actions, self.addresses, self.sizes, self.streams, self.pools = (
            events[:, column].tolist() for column in (ACTION, ADDRESS, SIZE, STREAM, POOL)
        )
        self.ids, self.makers = history.ids.tolist(), history.makers.tolist()
        self.known_pools = _Pools(start)
        self.released: set[int] = set()
        self.old = len(start.blocks)
        bases = [segment.base for segment in start.segments]
        for block in start.blocks:
            place = bisect_right(bases, block.address) - 1
            stream, pool = (0, 0) if place < 0 else (start.segments[place].stream, start.segments[place].pool)
            self.columns.add(ALLOC, _old_handle(block.address), block.requested, stream, pool, -1)
            if block.pending:
                self.columns.add(FREE_REQUESTED, _old_handle(block.address), 0, stream, pool, -1)

    def run(self) -> None:
        place = 0
        while place < len(self.actions):
            action = self.actions[place]
            if action in SEGMENT_EVENTS:
                place = self._window(place)
                continue
            if action in (ALLOC, PREEXISTING, OOM):
                self._add(ALLOC, place)
            elif action == FREE_REQUESTED and self._completed_at_once(place):
                self._add(FREE, place)
                place += 1
            elif action in (FREE, FREE_REQUESTED, FREE_COMPLETED):
                self._add(action, place)
            place += 1

    def _completed_at_once(self, place: int) -> bool:
        after = place + 1
        return (
            after < len(self.actions)
            and self.actions[after] == FREE_COMPLETED
            and self.addresses[after] == self.addresses[place]
        )

    def _add(self, action: int, place: int) -> None:
        if action == ALLOC and not self.sizes[place]:
            return  # such requests never reach the allocator
        maker = self.makers[place]
        handle = maker if maker >= 0 else _old_handle(self.addresses[place])
        pool = self.pools[place]
        if pool == UNKNOWN:
            pool = self.known_pools.of(self.addresses[place]) if len(self.history.pools) > 1 else 0
        self.columns.add(action, handle, self.sizes[place], self.streams[place], pool, self.ids[place])

    def _window(self, place: int) -> int:
        """One piece of segment events with the frees that were completed in it. Returns where it ends."""
        end = place
        while end < len(self.actions) and (self.actions[end] in SEGMENT_EVENTS or self.actions[end] == FREE_COMPLETED):
            end += 1
        if any(self.actions[at] in _RELEASES for at in range(place, end)) and not self._made_room(place, end):
            first = next(at for at in range(place, end) if self.actions[at] in _RELEASES)
            for at in range(place, end):
                self._release_pool(at)
            self.columns.add(EMPTY_CACHE, 0, 0, 0, 0, self.ids[first])
        for at in range(place, end):
            if self.actions[at] == FREE_COMPLETED:
                self._add(FREE_COMPLETED, at)
            elif self.actions[at] in _ACQUISITIONS:
                self.known_pools.add(self.addresses[at], self.pools[at])
        return end

    def _release_pool(self, at: int) -> None:
        """The first release of a private pool's memory says that nobody uses the pool any more."""
        if self.actions[at] not in _RELEASES:
            return
        pool = self.pools[at] if self.pools[at] != UNKNOWN else self.known_pools.of(self.addresses[at])
        if pool > 0 and pool not in self.released:
            self.released.add(pool)
            self.columns.add(RELEASE_POOL, 0, 0, 0, pool, self.ids[at])

    def _made_room(self, place: int, end: int) -> bool:
        """Whether the releases were made for the request at the end of the window, and not by the user before it."""
        requests = end < len(self.actions) and self.actions[end] in (ALLOC, OOM)
        failed = requests and self.actions[end] == OOM
        if not requests or not (failed or any(self.actions[at] in _ACQUISITIONS for at in range(place, end))):
            return False
        return not any(self._would_serve(at, end) for at in range(place, end) if self.actions[at] in _RELEASES)

    def _would_serve(self, release: int, request: int) -> bool:
        """Whether the request would have been met from what was released: then it came later."""
        size = round_size(self.history.conf, self.sizes[request])
        limit = self.history.conf.max_split_size
        small = self.sizes[release] <= SMALL_SEGMENT
        return bool(
            self.sizes[release] >= size
            and self.streams[release] == self.streams[request]
            and (size <= MOST_SMALL) == small
            and (limit is None or self.sizes[release] < limit)
            and self.pools[release] == self.pools[request]
        )

    def notes(self, ooms: int) -> list[str]:
        notes = []
        if self.old:
            notes.append(
                f"{self.old} blocks are older than the history: they are allocated first, in the order of their "
                "addresses"
            )
        if ooms:
            notes.append(f"{ooms} requests that failed when recorded are made again, and their blocks live to the end")
        return notes


def _old_handle(address: int) -> int:
    """Handles of blocks that the history did not make are negative; the others are ids of events."""
    return -1 - address
