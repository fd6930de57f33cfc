"""Single blocks: those that live at an instant, and one with all that is known of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchreel.analyze.memory.model.categories import CATEGORIES
from torchreel.errors import OptionError
from torchreel.reel.allocator_history import OLD
from torchreel.reel.columns import NOTHING
from torchreel.web.device_view import DeviceView, Ints, view_of
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel

BY = ("stack", "module", "op", "category")
OWNERS = ("user", "library", "torch", "native")  # whose code a frame is
_SORTS = ("size", "address", "made")
_ROWS = 200


def blocks(viewed: ViewedReel, query: Query) -> Any:
    """The blocks that live at an instant; of one line, module, op or category, if it is named."""
    by = query.choice("by", BY, "stack")
    sort = query.choice("sort", _SORTS, "size")
    limit = query.number("limit", 1, 1_000, _ROWS)
    view = view_of(viewed, query)
    if view is None:
        return {"at": {"event": -1, "time": None}, "count": 0, "bytes": 0, "rows": []}
    position = view.position(query)
    history = view.memory.history
    alive = history.alive(position)
    if "name" in query:
        labels = view.memory.labels(by)
        chosen = [number for number, text in enumerate(labels.texts) if text == query.text("name")]
        alive = alive[np.isin(labels.number[alive], chosen)]
    key = {"size": -history.blocks.size, "address": history.blocks.addr, "made": history.blocks.start}[sort]
    order = alive[np.argsort(key[alive], kind="stable")]
    return {
        "at": view.moment(position),
        "count": len(alive),
        "bytes": int(history.blocks.size[alive].sum()),
        "rows": rows_of_blocks(view, order[:limit]),
    }


def block(viewed: ViewedReel, query: Query) -> Any:
    """One block: its size, its life, its stack and the call that made it."""
    view = view_of(viewed, query)
    count = 0 if view is None else len(view.memory.history.blocks)
    if view is None or count == 0:
        raise OptionError("There are no blocks: no memory was recorded.")
    number = query.number("block", 0, count - 1, -1)
    if number < 0:
        raise OptionError(f"Give block, a number from 0 to {count - 1}.")
    found = rows_of_blocks(view, np.array([number]))[0]
    stacks = view.memory.run.stacks
    row = int(stacks.rows(view.memory.history.blocks.stack[[number]])[0])
    frames = [] if row == NOTHING else stacks.frames_of(row)
    return {
        **found,
        "lives_ns": _lives(view, found),
        "frames": [
            {"file": frame.file, "line": frame.line, "function": frame.function, "owner": OWNERS[frame.kind]}
            for frame in frames
        ],
    }


def rows_of_blocks(view: DeviceView, numbers: Ints) -> list[dict[str, Any]]:
    """What a table shows of each block."""
    history, memory = view.memory.history, view.memory
    found = history.blocks
    texts = {by: memory.labels(by) for by in ("stack", "module", "op")}
    rows = []
    for number in numbers.tolist():
        start, end = int(found.start[number]), int(found.end[number])
        op = int(found.op[number])
        rows.append(
            {
                "block": number,
                "size": int(found.size[number]),
                "address": f"{int(found.addr[number]):#x}" if found.addr[number] >= 0 else None,
                "made": view.moment(start),
                "freed": view.moment(end) if end < history.events else None,
                "older": start == OLD,
                "category": CATEGORIES[int(memory.categories[number])],
                **{by: labels.texts[int(labels.number[number])] for by, labels in texts.items()},
                "process": history.process,
                "op_id": op if op != NOTHING else None,
                "source": origin_of(view, number),
            }
        )
    return rows


def origin_of(view: DeviceView, number: int) -> dict[str, Any] | None:
    """File and line of the source that made a block, if they are known."""
    line = view.memory.line(number)
    frame = None if line is None else line.frame
    return None if frame is None else {"file": frame.file, "line": frame.line}


def _lives(view: DeviceView, found: dict[str, Any]) -> int | None:
    """How long a block lived, as far as that was seen: from the beginning of the history, or to its end."""
    if not view.memory.history.has_times or not view.memory.history.events:
        return None
    begin = found["made"]["time"]
    end = found["freed"]["time"] if found["freed"] else None
    first = (view.memory.history.start_ns or 0) - view.viewed.origin
    return (int(view.times[-1]) if end is None else end) - (first if begin is None else begin)
