"""Blocks, segments and pools of the allocator in plain Python."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator


class Block:
    __slots__ = ("address", "calls", "counter", "next", "pool", "previous", "requested", "segment", "size", "state")

    def __init__(self, segment: Segment, pool: Pool, address: int, size: int, counter: int) -> None:
        self.segment = segment
        self.pool = pool
        self.address = address
        self.size = size
        self.requested = 0
        self.counter = counter
        self.previous: Block | None = None
        self.next: Block | None = None
        self.state = "free"  # or pending, allocated, unmapped
        self.calls = 0

    @property
    def end(self) -> int:
        return self.address + self.size

    @property
    def is_split(self) -> bool:
        return self.previous is not None or self.next is not None

    def key(self) -> tuple[int, int, int, int, Block]:
        return (self.segment.stream, self.size, self.counter, self.address, self)


class Segment:
    def __init__(self, base: int, size: int, stream: int, page: int, counter: int) -> None:
        self.base = base
        self.size = size
        self.stream = stream
        self.page = page  # 0: not expandable
        self.counter = counter
        self.head: Block | None = None

    def blocks(self) -> Iterator[Block]:
        block = self.head
        while block is not None:
            yield block
            block = block.next


class Pool:
    def __init__(self, small: bool, owner: int) -> None:
        self.small = small
        self.owner = owner
        self.free: list[tuple[int, int, int, int, Block]] = []
        self.unmapped: list[tuple[int, int, Block]] = []
        self.calls = 0

    def insert(self, block: Block) -> None:
        block.state = "free"
        block.calls = self.calls
        insort(self.free, block.key())

    def remove(self, block: Block) -> None:
        del self.free[bisect_left(self.free, block.key())]

    def insert_unmapped(self, block: Block) -> None:
        block.state = "unmapped"
        insort(self.unmapped, (block.segment.stream, block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        del self.unmapped[bisect_left(self.unmapped, (block.segment.stream, block.address))]

    def first(self, stream: int, size: int) -> int:
        """The place of the first free block of the stream with so many bytes, if there is one."""
        return bisect_left(self.free, (stream, size))
