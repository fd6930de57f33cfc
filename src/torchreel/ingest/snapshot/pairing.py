"""The events of allocators, joined: which alloc a free belongs to, and the bytes allocated after each event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

OTHER, ALLOC, FREE_REQUESTED, FREE_COMPLETED = range(4)
KINDS = {"alloc": ALLOC, "free_requested": FREE_REQUESTED, "free_completed": FREE_COMPLETED}


@dataclass(frozen=True)
class Events:
    """Events in the order in which they happened, those of one device in a row."""

    device: Numbers
    kind: Numbers
    address: Numbers
    size: Numbers


@dataclass(frozen=True)
class Pairing:
    """For each event: the event that made its block, else -1, and by how much it changed the bytes allocated."""

    alloc: Numbers
    change: Numbers
    live: dict[tuple[int, int], int]  # (device, address) -> the alloc of each block that was not given back


def _last(positions: Numbers, where: NDArray[Any]) -> Numbers:
    """For each position, the last one up to it that is chosen, else -1."""
    return np.maximum.accumulate(np.where(where, positions, -1)) if len(positions) else positions


def _before(last: Numbers) -> Numbers:
    """The same for the position before each."""
    return np.concatenate([[-1], last[:-1]]).astype(np.int64) if len(last) else last


def pair(events: Events) -> Pairing:
    """Join frees with allocs by device and address.

    A block is allocated from its alloc to the first of its free_requested and free_completed, and its address is
    taken until the free_completed. Histories have gaps, where a ring was full or actions were skipped: an alloc at an
    address that is taken means that the free is missing, a free without an alloc that the block is older.
    """
    chosen = np.flatnonzero(events.kind != OTHER)
    order = chosen[np.lexsort((chosen, events.address[chosen], events.device[chosen]))]
    device, address = events.device[order], events.address[order]
    kind, size = events.kind[order], events.size[order]

    at = np.arange(len(order), dtype=np.int64)
    fresh = np.ones(len(order), bool)
    fresh[1:] = (device[1:] != device[:-1]) | (address[1:] != address[:-1])
    first = _last(at, fresh)
    made = _before(_last(at, kind == ALLOC))
    completed = _before(_last(at, kind == FREE_COMPLETED))
    requested = _before(_last(at, kind == FREE_REQUESTED))
    taken = (made >= first) & (made > completed)  # there is an alloc whose address was not given back
    released = (requested >= first) & (requested > made) & (requested > completed)

    is_free = kind >= FREE_REQUESTED
    own = np.where(taken, size[made], np.where(is_free, size, 0))  # what the block at this address had
    change = np.where(kind == ALLOC, size, 0) - np.where(released, 0, own)

    result = Pairing(np.full(len(events.kind), -1, np.int64), np.zeros(len(events.kind), np.int64), {})
    linked = is_free & taken
    result.alloc[order[linked]] = order[made[linked]]
    result.change[order] = change
    last = np.ones(len(order), bool)
    last[:-1] = fresh[1:]
    alive = last & ((kind == ALLOC) | ((kind == FREE_REQUESTED) & taken))
    makers = np.where(kind == ALLOC, at, made)[alive]
    keys = zip(device[alive].tolist(), address[alive].tolist(), strict=True)
    result.live.update(zip(keys, order[makers].tolist(), strict=True))
    return result


def totals(events: Events, pairing: Pairing, final: dict[int, int]) -> Numbers:
    """The bytes allocated on the device after each event, reckoned back from those that are allocated at the end."""
    result = np.zeros(len(events.kind), np.int64)
    older = (events.kind >= FREE_REQUESTED) & (pairing.alloc < 0)
    for device in np.unique(events.device).tolist():
        mine = events.device == device
        changes = np.cumsum(pairing.change[mine])
        # A snapshot may lack its state at the end; what was freed and not made in its history was there before.
        freed = -int(pairing.change[mine & older].sum())
        result[mine] = max(final.get(device, 0) - int(changes[-1]), freed) + changes
    return result
