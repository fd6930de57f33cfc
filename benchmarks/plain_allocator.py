"""The CUDA caching allocator in plain Python: the same rules as native/simulator/simulator.cpp, written for being read.

It is what the native one is held against: its answers by the tests, its speed by the benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.plain_blocks import Block, Pool, Segment
from benchmarks.plain_stats import Stats

MIB = 1 << 20
LEAST_BLOCK = 512
MOST_SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LEAST_OWN_SEGMENT = 10 * MIB
ADDRESS, BLOCK, SEGMENT = range(3)  # orders of equal free blocks

Event = tuple[str, int, int, int, int]  # action, address, size, stream, pool


class PlainAllocator:
    """Takes the rules and the pools' flags that the native model takes."""

    def __init__(self, rules: dict[str, Any], flags: dict[int, set[str]] | None = None) -> None:
        self.rules = rules
        self.flags = flags or {}
        self.pools: dict[int, tuple[Pool, Pool]] = {}  # small, large
        self.released: set[int] = set()
        self.segments: dict[int, Segment] = {}
        self.pending: list[Block] = []
        self.stats = Stats()
        self.trace: list[Event] = []
        self.live: dict[int, Block] = {}
        self.handles: dict[Block, int] = {}
        self.used = 0
        self.next_address = 0x7F << 40
        self.next_range = 1 << 61
        self.counter = 0
        self.pool(0)

    def run(self, events: Iterable[Event]) -> None:
        """Runs a program: alloc, free, free_requested, free_completed, empty_cache, release_pool."""
        for action, handle, size, stream, pool in events:
            if action == "alloc":
                block = self.malloc(size, stream, pool)
                if block is not None:
                    self.live[handle] = block
                    self.handles[block] = handle
            elif action == "empty_cache":
                self.release_cached()
            elif action == "release_pool":
                self.released.add(pool)
                self.pool(pool)
            elif handle in self.live:
                self._run_free(action, handle)

    def _run_free(self, action: str, handle: int) -> None:
        block = self.live[handle]
        if block.state == "allocated":
            self.request_free(block)
        if action != "free_requested":
            self.complete_free(block)

    def pool(self, index: int) -> tuple[Pool, Pool]:
        if index not in self.pools:
            self.pools[index] = (Pool(True, index), Pool(False, index))
        return self.pools[index]

    def record(self, action: str, address: int, size: int, stream: int, pool: Pool) -> None:
        self.trace.append((action, address, size, stream, pool.owner))

    def round(self, size: int) -> int:
        if size < LEAST_BLOCK:
            return LEAST_BLOCK
        log = size.bit_length() - 1
        divisions = self.rules["roundup_divisions"][min(max(log - 20, 0), 15)]
        if divisions > 1 and size > LEAST_BLOCK * divisions:
            if size == 1 << log:
                return size
            step = (1 << log) >> (divisions.bit_length() - 1)
            return 2 << log if step == 0 else -(-size // step) * step
        return -(-size // LEAST_BLOCK) * LEAST_BLOCK

    def segment_size(self, size: int) -> int:
        if size <= MOST_SMALL:
            return SMALL_SEGMENT
        if size < LEAST_OWN_SEGMENT:
            return int(self.rules["large_segment"])
        return -(-size // SMALL_SEGMENT) * SMALL_SEGMENT

    def malloc(self, requested: int, stream: int, index: int) -> Block | None:
        size = self.round(requested)
        pool = self.pool(index)[size > MOST_SMALL]
        expandable = self.rules["expandable"] and "own_device" not in self.flags.get(index, ())
        block = self.find(pool, size, stream, expandable)
        if block is None:
            block = self.make_room(pool, size, stream, expandable)
        if block is None:
            self.stats.count("num_ooms")
            self.record("oom", 0, size, stream, pool)
            return None
        if block.pool is not pool:
            expandable = False  # a block of a pool that others may take from
        return self.hand_out(block, size, requested, expandable)

    def find(self, pool: Pool, size: int, stream: int, expandable: bool) -> Block | None:
        if self.rules["counts_ages"]:
            pool.calls += 1
        place = pool.first(stream, size)
        free = pool.free

        def of_stream(at: int) -> bool:
            return at < len(free) and free[at][0] == stream

        def room(at: int) -> int:
            block = free[at][-1]
            grows = block.next is not None and block.next.state == "unmapped"
            return block.size + (block.next.size if grows and block.next else 0)

        if not of_stream(place):
            return None
        if free[place][-1].segment.page:
            if expandable:
                while free[place][-1].segment.page and of_stream(place + 1) and room(place + 1) < room(place):
                    place += 1
            else:
                while of_stream(place) and free[place][-1].segment.page:
                    place += 1
                if not of_stream(place):
                    return None
        found = free[place][-1]
        limit = self.rules["max_split"]
        if size < limit <= found.size:
            return None
        if size >= limit and found.size >= size + self.rules["max_non_split_rounding"]:
            return None
        del free[place]
        return found

    def make_room(self, pool: Pool, size: int, stream: int, expandable: bool) -> Block | None:
        wanted = self.segment_size(size)
        if self.rules["counts_ages"]:
            self.collect_garbage()
        limit = self.rules["limit"] if self.rules["limit"] is not None else self.rules["capacity"]
        if self.rules["throw_on_oom"] and self.stats.reserved + wanted > limit:
            self.stats.count("num_oom_rejections")
            return None
        block = self.acquire(pool, size, stream, expandable)
        if block is None and pool.owner == 0:
            block = self.find_overflow(pool.small, size, stream)
        if block is None and self.release_oversize(pool, size, stream):
            block = self.acquire(pool, size, stream, expandable)
        if block is None and "capturing" not in self.flags.get(pool.owner, ()):
            self.release_cached()
            self.stats.count("num_alloc_retries")
            block = self.acquire(pool, size, stream, expandable)
        return block

    def find_overflow(self, small: bool, size: int, stream: int) -> Block | None:
        for index in sorted(self.flags):
            if "use_on_oom" in self.flags[index]:
                block = self.find(self.pool(index)[not small], size, stream, expandable=False)
                if block is not None:
                    return block
        return None

    def take(self, size: int) -> bool:
        """Whether the device still has so much memory."""
        if self.used + size > self.rules["capacity"]:
            return False
        self.used += size
        return True

    def acquire(self, pool: Pool, size: int, stream: int, expandable: bool) -> Block | None:
        wanted = self.segment_size(size)
        if self.rules["limit"] is not None and self.stats.reserved + wanted > self.rules["limit"]:
            return None
        if expandable:
            return self.acquire_expandable(pool, size, stream)
        if not self.take(wanted):
            return None
        block = self.new_segment(self.next_address, wanted, pool, stream, 0)
        self.next_address += -(-wanted // SMALL_SEGMENT) * SMALL_SEGMENT
        self.stats.add("segment", pool.small, 1)
        if wanted >= self.rules["max_split"]:
            self.stats.oversize_segments.add(1)
        self.reserve(pool, wanted)
        self.record("segment_alloc", block.address, wanted, stream, pool)
        return block

    def new_segment(self, base: int, size: int, pool: Pool, stream: int, page: int) -> Block:
        counter = self.next_counter() if self.rules["order"] == SEGMENT else 0
        segment = Segment(base, size, stream, page, counter)
        self.segments[base] = segment
        if self.rules["order"] == BLOCK:
            counter = self.next_counter()
        segment.head = Block(segment, pool, base, size, counter)
        return segment.head

    def next_counter(self) -> int:
        self.counter += 1
        return self.counter

    def reserve(self, pool: Pool, size: int) -> None:
        self.stats.count("num_device_alloc")
        self.stats.reserve(pool.owner, pool.small, size)

    def piece(self, parent: Block, address: int, size: int) -> Block:
        counter = self.next_counter() if self.rules["order"] == BLOCK else parent.counter
        return Block(parent.segment, parent.pool, address, size, counter)

    def cut_front(self, block: Block, size: int) -> Block:
        front = self.piece(block, block.address, size)
        front.previous, front.next = block.previous, block
        if front.previous is not None:
            front.previous.next = front
        else:
            block.segment.head = front
        block.previous = front
        block.address += size
        block.size -= size
        return front

    def cut_back(self, block: Block, address: int) -> Block:
        back = self.piece(block, address, block.end - address)
        back.previous, back.next = block, block.next
        if back.next is not None:
            back.next.previous = back
        block.next = back
        block.size = address - block.address
        return back

    def hand_out(self, block: Block, size: int, requested: int, expandable: bool) -> Block:
        pool, small = block.pool, block.pool.small
        rest = block.size - size
        if "no_split" in self.flags.get(pool.owner, ()):
            splits = False
        elif small or expandable:
            splits = rest >= LEAST_BLOCK
        else:
            splits = size < self.rules["max_split"] and rest > MOST_SMALL
        was_split, counts = block.is_split, not block.segment.page
        if splits:
            remainder = block
            block = self.cut_front(remainder, size)
            pool.insert(remainder)
            if counts and was_split:
                self.stats.remove("inactive_split_bytes", small, size)
            elif counts:
                self.stats.add("inactive_split_bytes", small, remainder.size)
                self.stats.add("inactive_split", small, 1)
        elif counts and was_split:
            self.stats.remove("inactive_split_bytes", small, block.size)
            self.stats.remove("inactive_split", small, 1)
        block.state = "allocated"
        block.requested = requested
        self.stats.handed_out(small, block.size, requested)
        if block.size >= self.rules["max_split"]:
            self.stats.oversize_allocations.add(1)
        self.record("alloc", block.address, requested, block.segment.stream, pool)
        return block

    def request_free(self, block: Block) -> None:
        small = block.pool.small
        block.state = "pending"
        self.pending.append(block)
        self.stats.remove("allocation", small, 1)
        self.stats.remove("allocated_bytes", small, block.size)
        if block.size >= self.rules["max_split"]:
            self.stats.oversize_allocations.remove(1)
        self.record("free_requested", block.address, block.requested, block.segment.stream, block.pool)

    def complete_free(self, block: Block) -> None:
        self.pending.remove(block)
        handle = self.handles.pop(block, None)
        if handle is not None:
            del self.live[handle]
        pool, small = block.pool, block.pool.small
        self.record("free_completed", block.address, block.requested, block.segment.stream, pool)
        self.stats.remove("active", small, 1)
        self.stats.remove("active_bytes", small, block.size)
        self.stats.remove("requested_bytes", small, block.requested)
        merged = [size for size in (self.merge(block, "previous", "free"), self.merge(block, "next", "free")) if size]
        pool.insert(block)
        if not block.segment.page:
            self.stats.change("inactive_split", small, block.is_split - len(merged))
            self.stats.change("inactive_split_bytes", small, block.is_split * block.size - sum(merged))

    def merge(self, block: Block, side: str, state: str) -> int:
        """Takes a neighbour that is in that state into the block. Returns its bytes."""
        other: Block | None = getattr(block, side)
        if other is None or other.state != state:
            return 0
        if state == "free":
            other.pool.remove(other)
        else:
            other.pool.remove_unmapped(other)
        if side == "previous":
            block.address = other.address
            block.previous = other.previous
            if block.previous is not None:
                block.previous.next = block
            else:
                block.segment.head = block
        else:
            block.next = other.next
            if block.next is not None:
                block.next.previous = block
        block.size += other.size
        return other.size

    def acquire_expandable(self, pool: Pool, size: int, stream: int) -> Block | None:
        block = self.find_expandable(pool, size, stream)
        if block is None or (block.state == "unmapped" and not self.map(block, min(block.size, size))):
            return None
        while block.size < size:
            after = block.next
            assert after is not None
            if not self.map(after, min(size - block.size, after.size)):
                return None
            block = after
        pool.remove(block)
        return block

    def find_expandable(self, pool: Pool, size: int, stream: int) -> Block | None:
        usable = ("free", "unmapped")
        for of_stream, _, block in pool.unmapped:
            if of_stream != stream:
                continue
            first = block.previous if block.previous is not None and block.previous.state in usable else block
            room, at = 0, first
            while at is not None and at.state in usable:
                room += at.size
                at = at.next
            if room >= size:
                return first
        page = SMALL_SEGMENT if pool.small else self.rules["large_segment"]
        bytes_ = -(-self.rules["range_bytes"] // page) * page
        if bytes_ < size:
            return None
        block = self.new_segment(self.next_range, bytes_, pool, stream, page)
        self.next_range += -(-bytes_ // SMALL_SEGMENT) * SMALL_SEGMENT
        pool.insert_unmapped(block)
        return block

    def map(self, block: Block, wanted: int) -> bool:
        page = block.segment.page
        bytes_ = min(block.size, -(-wanted // page) * page)
        if not self.take(bytes_):
            return False
        pool, address = block.pool, block.address
        pool.remove_unmapped(block)
        if bytes_ < block.size:
            pool.insert_unmapped(self.cut_back(block, address + bytes_))
        self.merge(block, "previous", "free")
        self.merge(block, "next", "free")
        pool.insert(block)
        self.reserve(pool, bytes_)
        self.record("segment_map", address, bytes_, block.segment.stream, pool)
        return True

    def unmap(self, block: Block) -> None:
        segment, pool = block.segment, block.pool
        begin = segment.base + -(-(block.address - segment.base) // segment.page) * segment.page
        end = segment.base + (block.end - segment.base) // segment.page * segment.page
        if begin >= end:
            return
        pool.remove(block)
        if begin > block.address:
            pool.insert(self.cut_front(block, begin - block.address))
        if end < block.end:
            pool.insert(self.cut_back(block, end))
        self.merge(block, "previous", "unmapped")
        self.merge(block, "next", "unmapped")
        pool.insert_unmapped(block)
        self.used -= end - begin
        self.stats.reserve(pool.owner, pool.small, begin - end)
        self.stats.count("num_device_free")
        self.record("segment_unmap", begin, end - begin, segment.stream, pool)
        if not block.is_split:
            pool.remove_unmapped(block)
            del self.segments[segment.base]

    def release_segment(self, block: Block) -> None:
        pool, size = block.pool, block.size
        pool.remove(block)
        self.used -= size
        self.stats.remove("segment", pool.small, 1)
        self.stats.reserve(pool.owner, pool.small, -size)
        if size >= self.rules["max_split"]:
            self.stats.oversize_segments.remove(1)
        self.stats.count("num_device_free")
        self.record("segment_free", block.address, size, block.segment.stream, pool)
        del self.segments[block.segment.base]

    def release_cached(self) -> None:
        self.stats.count("num_sync_all_streams")
        for block in list(self.pending):
            self.complete_free(block)
        small, large = self.pools[0]
        order = [large, small]
        for index in sorted(self.released):
            order.extend(self.pools[index])
        for pool in order:
            blocks = [entry[-1] for entry in pool.free]
            for block in blocks:
                if not block.segment.page and not block.is_split:
                    self.release_segment(block)
            for block in blocks:
                if block.segment.page:
                    self.unmap(block)

    def release_oversize(self, pool: Pool, size: int, stream: int) -> bool:
        """Whether releasing blocks that are never split gave as many bytes as are needed."""
        limit = self.rules["max_split"]
        if limit >= 1 << 63:
            return False
        wanted = max(size, limit)
        place = pool.first(stream, wanted)
        if place < len(pool.free) and pool.free[place][0] == stream and not pool.free[place][-1].segment.page:
            self.release_segment(pool.free[place][-1])
            return True
        victims: list[Block] = []
        for entry in reversed(pool.free[:place]):
            block = entry[-1]
            if sum(victim.size for victim in victims) >= wanted or entry[0] != stream or block.size < limit:
                break
            if not block.segment.page:
                victims.append(block)
        released = sum(victim.size for victim in victims)
        for block in victims:
            self.release_segment(block)
        return released >= wanted

    def collect_garbage(self) -> None:
        threshold = int(self.rules["gc_threshold"] * self.rules["limit"])
        target = self.stats.reserved - threshold
        pool = self.pools[0][1]
        unsplit = [entry[-1] for entry in pool.free if not entry[-1].is_split]
        total, count = sum(pool.calls - block.calls for block in unsplit), len(unsplit)
        reclaimed, freed = 0, True
        while reclaimed < target and freed and count > 0:
            average = total / count
            freed = False
            for block in list(unsplit):
                if not block.segment.page and pool.calls - block.calls >= average:
                    unsplit.remove(block)
                    total -= pool.calls - block.calls
                    count -= 1
                    reclaimed += block.size
                    freed = True
                    self.release_segment(block)

    def state(self) -> list[tuple[int, int, int, str, int]]:
        """Address, size, requested, state and pool of all blocks with memory, by address."""
        rows = [
            (block.address, block.size, block.requested if block.state != "free" else 0, block.state, block.pool.owner)
            for segment in self.segments.values()
            for block in segment.blocks()
            if block.state != "unmapped"
        ]
        return sorted(rows)
