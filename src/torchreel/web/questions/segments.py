"""What the allocator looks like at an instant: segments by address, their blocks, and what is free between them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from torchreel.analyze.memory import allocator_state
from torchreel.analyze.memory.segments import FREE, KINDS, PENDING, STATES, AllocatorState, has_address, usage
from torchreel.reel.allocator_history import OLD
from torchreel.web.device_view import DeviceView, Ints, view_of, views_of
from torchreel.web.query import Query
from torchreel.web.questions.blocks import rows_of_blocks
from torchreel.web.viewed_reel import ViewedReel

_SORTS = ("address", "size", "free")
_ROWS = 60
_MOST_ROWS = 200
_PIECES = 12_000  # in one answer; a segment of more is drawn as cells
_FEWEST = 60
_LISTED = 400  # blocks of the segment that is chosen
_MANY = -2  # in place of a block's number, where several lie in one cell


def segments(viewed: ViewedReel, query: Query) -> Any:
    """The state after an event: sums, a window of its segments with what lies in them, and one segment's blocks."""
    sort = query.choice("sort", _SORTS, "address")
    first = query.number("first", 0, 1 << 40, 0)
    rows = query.number("rows", 1, _MOST_ROWS, _ROWS)
    chosen = query.text("segment")
    view = view_of(viewed, query)
    if view is None:
        return {"devices": [], "segments": []}
    history = view.memory.history
    state = allocator_state(view.memory, view.position(query))
    table = _Table(view, state)
    order = table.order(sort)
    place = table.find(chosen)
    return {
        "devices": [each.name for each in views_of(viewed)],
        "device": history.device,
        "has_times": history.has_times,
        "has_segments": history.reserves,
        "has_history": view.has_history,
        "events": history.events,
        "at": view.moment(state.position),
        "peak_at": view.moment(view.peak),
        "usage": asdict(usage(state)),
        "pools": [asdict(usage(state, kind)) for kind in KINDS[:2]],
        "requested": int(state.pieces.requested[state.pieces.state != FREE].sum()),
        "blocks": int((state.pieces.state != FREE).sum()),
        "inexact": int((~state.pieces.is_exact).sum()),
        "regions": int(state.segments.is_region.sum()),
        "without_address": int((~has_address(history.blocks.addr[history.alive(state.position)])).sum()),
        "older": {"blocks": int(table.older.sum()), "bytes": int(state.pieces.requested[table.older].sum())},
        "count": len(state.segments),
        "first": first,
        "largest": int(state.segments.size.max(initial=0)),
        "segments": table.rows(order[first : first + rows]),
        **({} if place is None else {"chosen": table.chosen(place, query)}),
        "place": None if place is None else int(np.flatnonzero(order == place)[0]),
    }


class _Table:
    """The segments of a state, as the page shows them."""

    def __init__(self, view: DeviceView, state: AllocatorState) -> None:
        self._view = view
        self._state = state
        blocks, pieces = view.memory.history.blocks, state.pieces
        used = pieces.block >= 0
        self.older = used & (np.append(blocks.start, 0)[pieces.block] == OLD)
        self._category = np.where(used, np.append(view.memory.categories, 0)[pieces.block], 0)
        self._starts = np.searchsorted(pieces.segment, np.arange(len(state.segments) + 1))
        free = pieces.state == FREE
        self._free = np.bincount(pieces.segment[free], pieces.size[free], len(state.segments)).astype(np.int64)

    def order(self, sort: str) -> Ints:
        size = self._state.segments.size
        if sort == "size":
            return np.argsort(-size, kind="stable")
        return np.argsort(-self._free, kind="stable") if sort == "free" else np.arange(len(size))

    def find(self, address: str) -> int | None:
        """The place of the segment that an address lies in."""
        try:
            wanted = int(address, 16)
        except ValueError:
            return None
        segments = self._state.segments
        place = int(np.searchsorted(segments.address, min(wanted, 1 << 62), side="right")) - 1
        inside = place >= 0 and wanted < int(segments.address[place]) + int(segments.size[place])
        return place if inside else None

    def rows(self, places: Ints) -> list[dict[str, Any]]:
        budget = max(_FEWEST, _PIECES // max(len(places), 1))
        return [self._row(int(place), budget) for place in places]

    def _row(self, place: int, budget: int) -> dict[str, Any]:
        segments, pieces = self._state.segments, self._state.pieces
        mine = slice(int(self._starts[place]), int(self._starts[place + 1]))
        size, state, requested = pieces.size[mine], pieces.state[mine], pieces.requested[mine]
        used = state != FREE
        return {
            "address": f"{int(segments.address[place]):#x}",
            "size": int(segments.size[place]),
            "kind": KINDS[int(segments.kind[place])],
            "stream": int(segments.stream[place]) if segments.stream[place] >= 0 else None,
            "pool": segments.pool[place],
            "expandable": bool(segments.expandable[place]),
            "region": bool(segments.is_region[place]),
            "blocks": int(used.sum()),
            "allocated": int(size[used].sum()),
            "requested": int(requested[used].sum()),
            "pending": int(size[state == PENDING].sum()),
            "free": int(self._free[place]),
            "largest_free": int(size[~used].max(initial=0)),
            "older": int(self.older[mine].sum()),
            "pieces": self._pieces(place, mine, budget),
        }

    def _pieces(self, place: int, mine: slice, budget: int) -> dict[str, Any]:
        """Columns: where each piece begins in its segment, its bytes, and what it is."""
        pieces = self._state.pieces
        begin = pieces.address[mine] - self._state.segments.address[place]
        columns: tuple[Ints, ...] = (
            begin,
            pieces.size[mine],
            pieces.requested[mine],
            pieces.state[mine],
            self._category[mine],
            self.older[mine].astype(np.int64),
            pieces.block[mine],
        )
        if len(begin) > budget:
            columns = _cells(columns, int(self._state.segments.size[place]), budget)
        names = ("begin", "size", "requested", "state", "category", "older", "block")
        return dict(zip(names, (column.tolist() for column in columns), strict=True))

    def chosen(self, place: int, query: Query) -> dict[str, Any]:
        """One segment with its pieces one by one."""
        skip = query.number("skip", 0, 1 << 40, 0)
        pieces = self._state.pieces
        first, last = int(self._starts[place]), int(self._starts[place + 1])
        listed = np.arange(first + skip, min(last, first + skip + _LISTED))
        blocks = pieces.block[listed]
        known = {row["block"]: row for row in rows_of_blocks(self._view, blocks[blocks >= 0])}
        return {
            **self._row(place, 2_000),
            "skip": skip,
            "count": last - first,
            "rows": [
                {
                    "address": f"{int(pieces.address[n]):#x}",
                    "size": int(pieces.size[n]),
                    "requested": int(pieces.requested[n]),
                    "state": STATES[int(pieces.state[n])],
                    "exact": bool(pieces.is_exact[n]),
                    **({"info": known[int(pieces.block[n])]} if pieces.block[n] >= 0 else {}),
                }
                for n in listed
            ],
        }


def _cells(columns: tuple[Ints, ...], length: int, cells: int) -> tuple[Ints, ...]:
    """A segment of many pieces as cells: each shows what most of it is. Pieces of a cell or more keep their number."""
    begin, size, _, state, category, older, block = columns
    code = state + 3 * (category + 8 * older)
    scale = cells / length
    first, last = np.ceil(begin * scale).astype(np.int64), np.floor((begin + size) * scale).astype(np.int64)
    middle = np.minimum((begin + size / 2) * scale, cells - 1).astype(np.int64)
    kinds, kind = np.unique(code, return_inverse=True)
    weight = np.bincount(middle * len(kinds) + kind, size, cells * len(kinds)).reshape(cells, len(kinds))
    shown, owner = kinds[weight.argmax(axis=1)], np.full(cells, _MANY, np.int64)
    empty = weight.sum(axis=1) == 0
    for n in np.flatnonzero(last > first):
        shown[first[n] : last[n]], owner[first[n] : last[n]] = code[n], block[n]
        empty[first[n] : last[n]] = False
    for cell in np.flatnonzero(empty):  # within a piece that has its middle elsewhere
        shown[cell] = shown[cell - 1] if cell else shown[0]
    runs = np.ones(cells, bool)
    runs[1:] = (shown[1:] != shown[:-1]) | (owner[1:] != owner[:-1])
    at = np.flatnonzero(runs)
    edges = np.round(np.append(at, cells) / scale).astype(np.int64)
    what = shown[at]
    wide = np.diff(edges)
    return edges[:-1], wide, wide, what % 3, what // 3 % 8, what // 24, owner[at]
