"""The lives of blocks: when each was made and freed, from an allocator's events and its final state.

Events are paired by address, so that a history that begins in the middle of a run, or that lost events, is read as far
as it tells: blocks that are freed without having been made, and blocks of the final state that no event made, are older
than the history.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel.analyze.memory.model.columns import NOTHING, Ints, ints, texts, translate

OTHER, ALLOC, PREEXISTING, REQUEST, COMPLETE, GROW, SHRINK, OOM = range(8)
ACTIONS = {
    "alloc": ALLOC,
    "preexisting": PREEXISTING,
    "free_requested": REQUEST,
    "free": COMPLETE,
    "free_completed": COMPLETE,
    "segment_alloc": GROW,
    "segment_map": GROW,
    "segment_free": SHRINK,
    "segment_unmap": SHRINK,
    "oom": OOM,
}
OLD = -1  # the position of a block that is older than the history


@dataclass(frozen=True)
class Blocks:
    """One item per block that lived. Positions count the device's events; a block lives in start <= position < end."""

    addr: Ints
    size: Ints  # bytes that the program asked for
    start: Ints  # the event that made it, or OLD
    end: Ints  # the event that freed it, or the number of events
    done: Ints  # the event after which its memory was free again: later than end where a stream still used it
    op: Ints
    stack: Ints
    thread: Ints
    category: Ints  # number in BlockHistory.categories, as recorded, or NOTHING

    def __len__(self) -> int:
        return len(self.addr)


def lives(allocs: pa.Table, action: Ints, size: Ints, category: Ints) -> Blocks:
    """Cut the events of each address into lives: a life begins with an alloc, or after a free that was completed."""
    position = np.flatnonzero((action >= ALLOC) & (action <= COMPLETE))
    address = ints(allocs, "addr")[position]
    order = np.argsort(address, kind="stable")
    position, address = position[order], address[order]
    kind = action[position]
    made = (kind == ALLOC) | (kind == PREEXISTING)
    same = np.zeros(len(position), bool)
    same[1:] = address[1:] == address[:-1]
    begins = ~same | made
    begins[1:] |= (kind[:-1] == COMPLETE) | ((kind[1:] == REQUEST) & (kind[:-1] == REQUEST))
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
    ended = ends <= last
    completed = kind[last] == COMPLETE
    row = position[first]
    start = np.where(kind[first] == ALLOC, row, np.where(kind[first] == PREEXISTING, OLD, before))
    end = np.where(ended, position[np.minimum(ends, last)], after)
    done = np.where(completed, position[last], after)
    known = made[first]
    origins = {name: np.where(known, ints(allocs, name)[row], NOTHING) for name in ("op", "thread")}
    # A free carries the stack of its alloc, below the context "all"; it is all that is known of a block that is older.
    return Blocks(
        addr=address[first],
        size=size[row],
        start=start,
        end=end,
        done=np.maximum(done, end),
        op=origins["op"],
        stack=ints(allocs, "stack")[row],
        thread=origins["thread"],
        category=category[row],
    )


def with_final(made: Blocks, final: pa.Table, count: int) -> Blocks:
    """Add the blocks of the final state that no event made, and the stacks that only the final state knows."""
    states, words = texts(final, "state")
    active = translate(states, words, {"active_allocated": 1, "active_pending_free": 2}, 0)
    rows = np.flatnonzero(active > 0)
    address = ints(final, "address")[rows]
    # The last life at each address: they are sorted by address, and in each by position.
    last = np.searchsorted(made.addr, address, side="right") - 1
    known = (last >= 0) & (made.addr[last] == address) if len(made) else np.zeros(len(rows), bool)
    living = known.copy()
    living[known] = made.done[last[known]] >= count
    stack = ints(final, "stack")[rows]
    stacks = made.stack.copy()
    found = last[living]
    stacks[found] = np.where(stacks[found] == NOTHING, stack[living], stacks[found])

    new = ~living
    requested = ints(final, "requested")[rows]
    size = np.where(requested >= 0, requested, ints(final, "size")[rows])[new]
    start = np.full(int(new.sum()), OLD, np.int64)
    start[known[new]] = made.done[last[new & known]]  # its alloc is missing, after the free of the one before
    pending = active[rows][new] == 2
    nothing = np.full(len(size), NOTHING, np.int64)
    alive = np.full(len(size), count, np.int64)
    return Blocks(
        addr=np.append(made.addr, address[new]),
        size=np.append(made.size, size),
        start=np.append(made.start, start),
        end=np.append(made.end, np.where(pending, start, alive)),
        done=np.append(made.done, alive),
        op=np.append(made.op, nothing),
        stack=np.append(stacks, stack[new]),
        thread=np.append(made.thread, nothing),
        category=np.append(made.category, nothing),
    )
