"""Fragmentation: the reserved memory of the final state that no block uses, why it cannot be used, and what pins it.

Memory that the allocator has reserved and no block uses is of two kinds. A segment that is wholly free, and in an
expandable segment every page that is, is *cached*: it can be returned to the device. The rest is *split*: free pieces
beside blocks that live, which only a request that fits into one of them can use.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel.analyze.memory.model.device import DeviceMemory
from torchreel.reel.columns import Ints, Mask, ints, texts, translate

_PAGE = {"small": 2 << 20, "large": 20 << 20}  # bytes that an expandable segment is mapped in
_MOSTLY_EMPTY = 0.5  # of a segment
_NOTABLE = 0.1  # of what is reserved: below this, fragmentation is not worth a word of advice
_LEAST = 32 << 20  # bytes, likewise

PINS = pa.schema(
    [
        ("name", pa.string()),  # the line that made the blocks
        ("blocks", pa.int64()),
        ("bytes", pa.int64()),  # of these blocks
        ("segments", pa.int64()),  # mostly empty ones that they are in
        ("pinned", pa.int64()),  # free bytes of those segments, shared out by the bytes of the blocks
    ]
)


@dataclass(frozen=True)
class Pool:
    """The segments for blocks of one size class, or all of them."""

    name: str  # small, large, or all
    segments: int
    reserved: int
    allocated: int  # bytes of blocks, as the allocator rounds
    pending: int  # freed, and still in use by a stream
    rounding: int  # bytes that blocks are larger than what was asked for
    split: int
    cached: int
    largest_free: int  # the largest piece that is free


@dataclass(frozen=True)
class Fragmentation:
    """The final state of a device's allocator."""

    total: Pool
    pools: tuple[Pool, ...]
    expandable: bool  # whether any segment can grow
    fixed: bool  # whether any segment cannot
    pins: pa.Table  # the blocks that live in mostly empty segments, by line; those that cost most first
    pinned_segments: int

    @property
    def notable(self) -> bool:
        """Whether enough is split to care."""
        return self.total.split >= max(_NOTABLE * self.total.reserved, _LEAST)

    @property
    def cached_notable(self) -> bool:
        return self.total.cached >= max(_NOTABLE * self.total.reserved, _LEAST)

    @property
    def rounding_notable(self) -> bool:
        return self.total.rounding >= max(_NOTABLE * self.total.allocated, _LEAST)


@dataclass(frozen=True)
class _State:
    """The pieces of all segments, with the segment of each."""

    segment: Ints  # place of each piece's segment
    address: Ints
    size: Ints
    used: Mask
    pending: Mask
    rounding: Ints
    returnable: Ints  # bytes of a free piece that can go back to the device


def fragmentation(memory: DeviceMemory) -> Fragmentation | None:
    """How the final state is cut up; None where the allocator has no segments, as the system's."""
    table = memory.history.segments
    if not table.num_rows:
        return None
    table = table.take(np.argsort(ints(table, "address"), kind="stable"))
    kinds, words = texts(table, "type")
    kind = translate(kinds, words, {"small": 0, "large": 1}, 1)
    expandable = table["expandable"].fill_null(False).to_numpy().astype(bool)
    state = _state(memory, table, kind, expandable)
    pins, pinned = _pins(memory, table, state)
    everything = np.ones(table.num_rows, bool)
    return Fragmentation(
        total=_pool("all", everything, table, state),
        pools=tuple(_pool(name, kind == n, table, state) for n, name in enumerate(("small", "large"))),
        expandable=bool(expandable.any()),
        fixed=bool((~expandable).any()),
        pins=pins,
        pinned_segments=pinned,
    )


def _state(memory: DeviceMemory, segments: pa.Table, kind: Ints, expandable: Mask) -> _State:
    final = memory.history.final
    base, length = ints(segments, "address"), ints(segments, "size")
    address, size = ints(final, "address"), ints(final, "size")
    segment = np.maximum(np.searchsorted(base, address, side="right") - 1, 0)
    inside = (address >= base[segment]) & (address < base[segment] + length[segment])
    states, words = texts(final, "state")
    state = translate(states, words, {"active_allocated": 1, "active_pending_free": 2}, 0)
    requested = ints(final, "requested")
    rounding = np.where((state == 1) & (requested >= 0), np.maximum(size - requested, 0), 0)
    back = returnable(kind, expandable, base, segment[inside], address[inside], size[inside], state[inside] > 0)
    return _State(
        segment=segment[inside],
        address=address[inside],
        size=size[inside],
        used=state[inside] > 0,
        pending=state[inside] == 2,
        rounding=rounding[inside],
        returnable=back,
    )


def returnable(kind: Ints, expandable: Mask, base: Ints, segment: Ints, address: Ints, size: Ints, used: Mask) -> Ints:
    """How many bytes of each piece can go back to the device: those of free segments, and of free pages.

    `kind` (0: small), `expandable` and `base` are the segments'; the others are the pieces', `segment` their places.
    """
    in_use = np.bincount(segment, np.where(used, size, 0), len(base))
    page = np.where(kind == 0, _PAGE["small"], _PAGE["large"])[segment]
    from_base = address - base[segment]
    pages = (from_base + size) // page - -(-from_base // page)
    whole = np.where(expandable[segment], np.maximum(pages, 0) * page, np.where(in_use[segment] == 0, size, 0))
    return np.where(used, 0, whole)


def _pool(name: str, chosen: Mask, segments: pa.Table, state: _State) -> Pool:
    mine = chosen[state.segment]
    free = mine & ~state.used
    return Pool(
        name=name,
        segments=int(chosen.sum()),
        reserved=int(ints(segments, "size")[chosen].sum()),
        allocated=int(state.size[mine & state.used & ~state.pending].sum()),
        pending=int(state.size[mine & state.pending].sum()),
        rounding=int(state.rounding[mine].sum()),
        split=int((state.size - state.returnable)[free].sum()),
        cached=int(state.returnable[free].sum()),
        largest_free=int(state.size[free].max(initial=0)),
    )


def _pins(memory: DeviceMemory, segments: pa.Table, state: _State) -> tuple[pa.Table, int]:
    """The lines of the blocks in segments that are mostly empty and cannot be returned, and the number of those."""
    count = segments.num_rows
    size = ints(segments, "size")
    split = np.bincount(state.segment, np.where(state.used, 0, state.size - state.returnable), count)
    used = np.bincount(state.segment, np.where(state.used, state.size, 0), count)
    pinned = (used > 0) & (split >= _MOSTLY_EMPTY * size)
    holding = state.used & pinned[state.segment]
    cost = state.size[holding] / np.maximum(used[state.segment[holding]], 1) * split[state.segment[holding]]

    labels = memory.labels("stack")
    number = labels.number[_living(memory, state.address[holding])]
    groups, group = np.unique(number, return_inverse=True)
    distinct = np.unique(np.stack((group, state.segment[holding])), axis=1)
    totals = np.bincount(group, cost, len(groups))
    sizes = np.bincount(group, state.size[holding], len(groups))
    blocks, places = np.bincount(group, minlength=len(groups)), np.bincount(distinct[0], minlength=len(groups))
    order = np.argsort(-totals, kind="stable")
    table = pa.table(
        {
            "name": [labels.texts[groups[n]] for n in order],
            "blocks": blocks[order],
            "bytes": sizes[order].astype(np.int64),
            "segments": places[order],
            "pinned": np.round(totals[order]).astype(np.int64),
        },
        schema=PINS,
    )
    return table, int(pinned.sum())


def _living(memory: DeviceMemory, addresses: Ints) -> Ints:
    """The blocks of the history that live at these addresses at its end."""
    blocks = memory.history.blocks
    alive = np.flatnonzero(blocks.done >= memory.history.events)
    alive = alive[np.argsort(blocks.addr[alive], kind="stable")]
    if not len(alive):
        return np.zeros(0, np.int64)
    return alive[np.minimum(np.searchsorted(blocks.addr[alive], addresses), len(alive) - 1)]
