"""Memory over time, who holds it at a moment, and what changed: the numbers of `torchreel memory`."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchreel.analyze.memory import bands, blocks_in_view, changes, holders
from torchreel.analyze.memory.bands import tops
from torchreel.analyze.memory.model.device import OLDER
from torchreel.reel.allocator_history import OLD
from torchreel.web.device_view import DeviceView, Ints, view_of, views_of
from torchreel.web.query import Query
from torchreel.web.questions.blocks import origin_of
from torchreel.web.viewed_reel import ViewedReel

BY = ("stack", "module", "op", "category")
SHOWN_BY = (*BY, "blocks", "total")
# From the bottom up: what stays, then what comes and goes.
_ORDER = ("parameter", "optimizer_state", "gradient", "activation", "input", "temporary", "unknown")
_POINTS = 800
_MOST_POINTS = 1_500
_BANDS = 12
_BLOCKS = 2_000
_ROWS = 200


def memory(viewed: ViewedReel, query: Query) -> Any:
    """A device's memory in view as bands, and its holders at an instant, or at the peak."""
    by = query.choice("by", SHOWN_BY, "stack")
    view = view_of(viewed, query)
    if view is None:
        return {"devices": [], "holders": []}
    history = view.memory.history
    axis = view.axis(query)
    position = view.position(query)
    held_by = by if by in BY else "stack"
    holding = holders(view.memory, held_by, position)
    return {
        "devices": [each.name for each in views_of(viewed)],
        "has_times": history.has_times,
        "has_history": view.has_history,
        "end": viewed.end if axis == "time" else max(history.events, 1),
        "events": history.events,
        "axis": axis,
        **_curve(view, query, axis, by),
        "peak": int(history.allocated[view.peak + 1]),
        "peak_at": view.moment(view.peak),
        "at": view.moment(position),
        "allocated": int(history.allocated[position + 1]),
        "reserved_at": int(history.reserved[position + 1]) if history.reserves else None,
        "blocks_at": len(history.alive(position)),
        "older": _older(view, position),
        "holders": _with_origins(view, held_by, position, holding.slice(0, _ROWS).to_pylist()),
        "held_by": held_by,
        "all_holders": holding.num_rows,
    }


def memory_changes(viewed: ViewedReel, query: Query) -> Any:
    """What came and went between two times, or two events."""
    by = query.choice("by", BY, "stack")
    view = view_of(viewed, query)
    if view is None:
        return {"rows": []}
    axis = view.axis(query)
    begin, end = view.span(query, axis)
    first, last = view.positions(axis, np.array([begin, end]))
    first, last = int(first) - 1, max(int(last) - 1, int(first) - 1)
    levels = view.memory.history.allocated[first + 1 : last + 2]
    table = changes(view.memory, by, first, last)
    return {
        "first": view.moment(first),
        "last": view.moment(last),
        "before": int(levels[0]),
        "after": int(levels[-1]),
        "least": int(levels.min()),
        "mean": int(levels.mean()),
        "most": int(levels.max()),
        "rows": table.slice(0, _ROWS).to_pylist(),
        "all": table.num_rows,
    }


def _curve(view: DeviceView, query: Query, axis: str, by: str) -> dict[str, Any]:
    """What is drawn. Each point is the moment in it at which most was allocated."""
    history = view.memory.history
    begin, end = view.span(query, axis)
    points = query.number("points", 1, _MOST_POINTS, _POINTS)
    if axis == "events":
        points = min(points, end - begin)
    edges = view.positions(axis, np.linspace(begin, end, points + 1).astype(np.int64))
    positions = tops(history.allocated, edges)
    found: dict[str, Any] = {
        "begin": begin,
        "finish": end,
        "at_events": positions.tolist(),
        "most": history.allocated[positions + 1].tolist(),
        "reserved": _most_reserved(view, edges) if history.reserves else None,
    }
    if by == "total":
        return found
    if by == "blocks":
        return {**found, **_blocks(view, positions)}
    cut = bands(view.memory, by, positions, _BANDS)
    rows = sorted(
        zip(cut.names, cut.category, cut.bytes.tolist(), strict=True),
        key=lambda row: (row[0] != OLDER, _ORDER.index(row[1])),
    )
    return {
        **found,
        "bands": [
            {"name": name, "category": category, "older": name == OLDER, "bytes": values}
            for name, category, values in rows
        ],
        "rest": {"groups": cut.others, "bytes": cut.rest.tolist() if cut.others else []},
    }


def _most_reserved(view: DeviceView, edges: Ints) -> list[int]:
    reserved = view.memory.history.reserved
    return [int(reserved[p + 1]) for p in tops(reserved, edges).tolist()]


def _blocks(view: DeviceView, positions: Ints) -> dict[str, Any]:
    """Single blocks as columns: number, size, cells, category, and whether they are older than the history."""
    found = blocks_in_view(view.memory, positions, _BLOCKS)
    blocks = view.memory.history.blocks
    return {
        "blocks": {
            "block": found.block.tolist(),
            "size": blocks.size[found.block].tolist(),
            "first": found.first.tolist(),
            "last": found.last.tolist(),
            "category": view.memory.categories[found.block].tolist(),
            "older": (blocks.start[found.block] == OLD).astype(np.int64).tolist(),
        },
        "rest": {"groups": found.others, "bytes": found.rest.tolist() if found.others else []},
    }


def _older(view: DeviceView, position: int) -> dict[str, int]:
    """The blocks that were there before the history began."""
    history = view.memory.history
    alive = history.alive(position)
    old = alive[history.blocks.start[alive] == OLD]
    return {"blocks": len(old), "bytes": int(history.blocks.size[old].sum())}


def _with_origins(view: DeviceView, by: str, position: int, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each holder with the source line of its largest block, and whether it is older than the history."""
    history, labels = view.memory.history, view.memory.labels(by)
    alive = history.alive(position)
    alive = alive[np.argsort(-history.blocks.size[alive], kind="stable")]
    first: dict[str, int] = {}
    for group, at in zip(*np.unique(labels.number[alive], return_index=True), strict=True):
        first[labels.texts[int(group)]] = int(alive[at])
    return [
        {**row, "older": row["name"] == OLDER, "source": origin_of(view, first[row["name"]]) if by == "stack" else None}
        for row in rows
    ]
