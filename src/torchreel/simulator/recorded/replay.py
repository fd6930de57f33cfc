"""The request trace of a recorded history: what was asked of the allocator, without what it made of it."""

from __future__ import annotations

from bisect import bisect_right

from torchreel.reel.allocator_history.actions import (
    ALLOC,
    EMPTY_CACHE,
    FREE,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    PREEXISTING,
    RELEASE_POOL,
    RELEASES,
    RESERVES,
    SEGMENT_EVENTS,
    SEGMENT_FREE,
)
from torchreel.reel.columns import Ints
from torchreel.simulator.recorded.recorded_history import (
    ACTION,
    ADDRESS,
    POOL,
    SIZE,
    STREAM,
    UNKNOWN,
    RecordedHistory,
)
from torchreel.simulator.recorded.start import Start, rebuild
from torchreel.simulator.request_trace import Columns, RequestTrace
from torchreel.simulator.rules import MOST_SMALL, SMALL_SEGMENT, round_size, segment_size, version_of


def request_trace_of_history(history: RecordedHistory) -> RequestTrace:
    """What a recorded program did: its requests and frees, and where its user emptied the cache.

    A history that begins mid-run is preceded by the blocks that lived then, in the order of their addresses: how they
    came to lie where they lay is in no file. Releases that made room for a request are left out: an allocator with
    other settings decides anew. A request that failed is made again; if it is met now, its block lives to the end.
    """
    start, events = rebuild(history)
    replay = _Replay(history, start, events)
    replay.run()
    return RequestTrace(
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
        index = bisect_right(self.bases, address) - 1
        return self.pools[self.bases[index]] if index >= 0 else 0

    def add(self, base: int, pool: int) -> None:
        if base not in self.pools:
            self.bases.insert(bisect_right(self.bases, base), base)
        self.pools[base] = max(pool, 0)


class _Replay:
    def __init__(self, history: RecordedHistory, start: Start, events: Ints) -> None:
        self.history = history
        self.columns = Columns()
        self.actions, self.addresses, self.sizes, self.streams, self.pools = (
            events[:, column].tolist() for column in (ACTION, ADDRESS, SIZE, STREAM, POOL)
        )
        self.ids, self.makers = history.ids.tolist(), history.makers.tolist()
        self.known_pools = _Pools(start)
        self.released: set[int] = set()
        self.reserved = start.reserved
        self.most_reserved = history.peak_reserved()
        self.old = len(start.blocks)
        bases = [segment.base for segment in start.segments]
        for block in start.blocks:
            index = bisect_right(bases, block.address) - 1
            stream, pool = (0, 0) if index < 0 else (start.segments[index].stream, start.segments[index].pool)
            self.columns.add(ALLOC, _old_handle(block.address), block.requested, stream, pool, -1)
            if block.pending:
                self.columns.add(FREE_REQUESTED, _old_handle(block.address), 0, stream, pool, -1)

    def run(self) -> None:
        index = 0
        while index < len(self.actions):
            action = self.actions[index]
            if action in SEGMENT_EVENTS:
                index = self._window(index)
                continue
            if action in (ALLOC, PREEXISTING, OOM):
                self._add(ALLOC, index)
            elif action == FREE_REQUESTED and self._completed_at_once(index):
                self._add(FREE, index)
                index += 1
            elif action in (FREE, FREE_REQUESTED, FREE_COMPLETED):
                self._add(action, index)
            index += 1

    def _completed_at_once(self, index: int) -> bool:
        after = index + 1
        return (
            index >= 0
            and after < len(self.actions)
            and self.actions[index] == FREE_REQUESTED
            and self.actions[after] == FREE_COMPLETED
            and self.addresses[after] == self.addresses[index]
        )

    def _add(self, action: int, index: int) -> None:
        if action == ALLOC and not self.sizes[index]:
            return  # such requests never reach the allocator
        maker = self.makers[index]
        handle = maker if maker >= 0 else _old_handle(self.addresses[index])
        pool = self.pools[index]
        if pool == UNKNOWN:
            pool = self.known_pools.of(self.addresses[index]) if len(self.history.pools) > 1 else 0
        self.columns.add(action, handle, self.sizes[index], self.streams[index], pool, self.ids[index])

    def _window(self, index: int) -> int:
        """One piece of segment events with the frees that were completed in it. Returns where it ends."""
        end = index
        while end < len(self.actions) and (self.actions[end] in SEGMENT_EVENTS or self.actions[end] == FREE_COMPLETED):
            end += 1
        if any(self.actions[at] in RELEASES for at in range(index, end)) and not self._made_room(index, end):
            first = next(at for at in range(index, end) if self.actions[at] in RELEASES)
            for at in range(index, end):
                self._release_pool(at)
            self.columns.add(EMPTY_CACHE, 0, 0, 0, 0, self.ids[first])
        for at in range(index, end):
            if self.actions[at] == FREE_COMPLETED:
                self._add(FREE_COMPLETED, at)
            elif self.actions[at] in RESERVES:
                self.known_pools.add(self.addresses[at], self.pools[at])
                self.reserved += self.sizes[at]
            else:
                self.reserved -= self.sizes[at]
        return end

    def _release_pool(self, at: int) -> None:
        """The first release of a private pool's memory says that nobody uses the pool any more."""
        if self.actions[at] not in RELEASES:
            return
        pool = self._pool_of(at)
        if pool > 0 and pool not in self.released:
            self.released.add(pool)
            self.columns.add(RELEASE_POOL, 0, 0, 0, pool, self.ids[at])

    def _made_room(self, index: int, end: int) -> bool:
        """Whether the releases were made for the request at the end of the window, and not by the user before it.

        They were not if the cache had a block for it, or if the device had room for it, as it has had at another time:
        then only garbage is released.
        """
        if end == len(self.actions) or self.actions[end] not in (ALLOC, OOM):
            return False
        late = self._completed_late(index, end)
        releases = [at for at in range(index, end) if self.actions[at] in RELEASES]
        if self.actions[end] == ALLOC:
            taken = sum(self.sizes[at] for at in range(index, end) if self.actions[at] in RESERVES)
            if not taken and not self._overlaps(end, late):
                return False
            if self._had_room(taken, self.sizes[end]) and not self._may_be_garbage(releases):
                return False
        pool = self._pool_of_request(index, end)
        return not any(self._would_serve(at, end, pool) and not self._overlaps(at, late) for at in releases)

    def _had_room(self, taken: int, requested: int) -> bool:
        """Whether the device once held more than this request would have made it hold.

        A limit is held against the size of a segment, though expandable ones then take other, whole pages: so they may
        have gone beyond it by a page.
        """
        conf = self.history.conf
        excess = conf.large_segment_size if conf.expandable_segments else 0
        return self.reserved + max(taken, segment_size(conf, requested)) + excess <= self.most_reserved

    def _may_be_garbage(self, releases: list[int]) -> bool:
        """Whether old blocks may have been released before the device was asked: large segments, as they are."""
        return self.history.conf.garbage_collection_threshold > 0 and all(
            self.actions[at] == SEGMENT_FREE and self.sizes[at] > SMALL_SEGMENT for at in releases
        )

    def _completed_late(self, index: int, end: int) -> list[int]:
        """The frees that were completed within the request: its search may have come before them."""
        first = index
        while first and self.actions[first - 1] == FREE_COMPLETED and not self._completed_at_once(first - 2):
            first -= 1
        return [at for at in range(first, end) if self.actions[at] == FREE_COMPLETED]

    def _overlaps(self, one: int, others: list[int]) -> bool:
        """Whether the memory of an event is in part that of one of the others."""
        begin, end = self.addresses[one], self.addresses[one] + self.sizes[one]
        return any(self.addresses[at] < end and begin < self.addresses[at] + self.sizes[at] for at in others)

    def _pool_of(self, at: int) -> int:
        return self.pools[at] if self.pools[at] != UNKNOWN else self.known_pools.of(self.addresses[at])

    def _pool_of_request(self, index: int, end: int) -> int:
        """That of the memory which was taken for it; else that in which it lies."""
        taken = (self.pools[at] for at in range(index, end) if self.actions[at] in RESERVES)
        known = (pool for pool in (self.pools[end], *taken) if pool != UNKNOWN)
        return next(known, 0 if self.actions[end] == OOM else self._pool_of(end))

    def _would_serve(self, release: int, request: int, pool: int) -> bool:
        """Whether the request would have been met from what was released: then it came later."""
        size = round_size(self.history.conf, self.sizes[request])
        limit = self.history.conf.max_split_size
        small = self.sizes[release] <= SMALL_SEGMENT
        return bool(
            self.sizes[release] >= size
            and self.streams[release] == self.streams[request]
            and (size <= MOST_SMALL) == small
            and (limit is None or self.sizes[release] < limit)
            and self._pool_of(release) == pool
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
