"""The lives of blocks: when each was made and freed, from an allocator's events and its final state.

Events are paired by address, so that a history that begins in the middle of a run, or that lost events, is read as far
as it tells: blocks that are freed without having been made, and blocks of the final state that no event made, are older
than the history.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel.reel.allocator_history.actions import ALLOC, FREE_REQUESTED, FREES_BLOCK, MAKES_BLOCK, PREEXISTING
from torchreel.reel.columns import NOTHING, Ints, Mask, ints, texts, translate

OLD = -1  # the position of a block that is older than the history


@dataclass(frozen=True)
class Lives:
    """One item per life, sorted by address, and by time at each address. Positions count the events."""

    events: int
    address: Ints
    first: Ints  # the position of its first event: the one that made it, or else the one that freed it
    made: Mask  # whether an event made it
    start: Ints  # the event that made it, or OLD
    end: Ints  # the event that freed it, or the number of events
    done: Ints  # the event after which its memory was free again: later than end where a stream still used it

    def __len__(self) -> int:
        return len(self.address)

    def last_at(self, address: Ints) -> Ints:
        """The last life at each address, by number; NOTHING where there was none."""
        if not len(self):
            return np.full(len(address), NOTHING, np.int64)
        last = np.searchsorted(self.address, address, side="right") - 1
        return np.where((last >= 0) & (self.address[last] == address), last, NOTHING)

    def goes_on(self, life: Ints) -> Mask:
        """Whether each life, by number, lasts to the end; not for NOTHING."""
        known = life != NOTHING
        goes_on: Mask = known.copy()
        goes_on[known] = self.done[life[known]] >= self.events
        return goes_on


def lives(action: Ints, address: Ints) -> Lives:
    """Cut the events of each address into lives: a life begins with an alloc, or after a free that was completed."""
    position = np.flatnonzero(np.isin(action, (*MAKES_BLOCK, FREE_REQUESTED, *FREES_BLOCK)))
    address = address[position]
    order = np.argsort(address, kind="stable")
    position, address = position[order], address[order]
    kind = action[position]
    made, freed, requested = np.isin(kind, MAKES_BLOCK), np.isin(kind, FREES_BLOCK), kind == FREE_REQUESTED
    same = np.zeros(len(position), bool)
    same[1:] = address[1:] == address[:-1]
    begins = ~same | made
    begins[1:] |= freed[:-1] | (requested[1:] & requested[:-1])
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(position)) - 1 if len(first) else first
    count = len(action)

    # What is not known of a life is bounded by its neighbours at the same address.
    follows = np.zeros(len(first), bool)
    follows[1:] = address[first[1:]] == address[first[:-1]]
    before = np.where(follows, position[np.maximum(first - 1, 0)], OLD)
    after = np.full(len(first), count, np.int64)
    after[:-1] = np.where(follows[1:], position[first[1:]], count)

    ends = first + made[first]  # the first event of the life that is no alloc
    row = position[first]
    start = np.where(kind[first] == ALLOC, row, np.where(kind[first] == PREEXISTING, OLD, before))
    end = np.where(ends <= last, position[np.minimum(ends, last)], after)
    done = np.where(freed[last], position[last], after)
    return Lives(count, address[first], row, made[first], start, end, np.maximum(done, end))


@dataclass(frozen=True)
class Blocks:
    """One item per block that lived. Positions count the device's events; a block lives in start <= position < end."""

    addr: Ints
    size: Ints  # bytes that the program asked for
    start: Ints  # as in Lives
    end: Ints
    done: Ints
    op: Ints
    stack: Ints
    thread: Ints
    category: Ints  # number in AllocatorHistory.categories, as recorded, or NOTHING

    def __len__(self) -> int:
        return len(self.addr)


def blocks(allocs: pa.Table, action: Ints, size: Ints, category: Ints, final: pa.Table) -> Blocks:
    """All blocks of a history, by its events and its final state."""
    found = lives(action, ints(allocs, "addr"))
    row = found.first
    origins = {name: np.where(found.made, ints(allocs, name)[row], NOTHING) for name in ("op", "thread")}
    made = Blocks(
        addr=found.address,
        size=size[row],
        start=found.start,
        end=found.end,
        done=found.done,
        op=origins["op"],
        # A free carries the stack of its alloc, below the context "all": for older blocks nothing else is known.
        stack=ints(allocs, "stack")[row],
        thread=origins["thread"],
        category=category[row],
    )
    return _with_final(made, found, final)


def _with_final(made: Blocks, found: Lives, final: pa.Table) -> Blocks:
    """Add the blocks of the final state that no event made, and the stacks that only the final state knows."""
    states, words = texts(final, "state")
    active = translate(states, words, {"active_allocated": 1, "active_pending_free": 2}, 0)
    rows = np.flatnonzero(active > 0)
    address = ints(final, "address")[rows]
    last = found.last_at(address)
    known, living = last != NOTHING, found.goes_on(last)
    stack = ints(final, "stack")[rows]
    stacks = made.stack.copy()
    alive = last[living]
    stacks[alive] = np.where(stacks[alive] == NOTHING, stack[living], stacks[alive])

    new = ~living
    requested = ints(final, "requested")[rows]
    size = np.where(requested >= 0, requested, ints(final, "size")[rows])[new]
    start = np.full(int(new.sum()), OLD, np.int64)
    start[known[new]] = made.done[last[new & known]]  # its alloc is missing, after the free of the one before
    pending = active[rows][new] == 2
    nothing = np.full(len(size), NOTHING, np.int64)
    never = np.full(len(size), found.events, np.int64)
    return Blocks(
        addr=np.append(made.addr, address[new]),
        size=np.append(made.size, size),
        start=np.append(made.start, start),
        end=np.append(made.end, np.where(pending, start, never)),
        done=np.append(made.done, never),
        op=np.append(made.op, nothing),
        stack=np.append(stacks, stack[new]),
        thread=np.append(made.thread, nothing),
        category=np.append(made.category, nothing),
    )
