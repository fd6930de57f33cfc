"""What the page needs before it draws anything."""

from __future__ import annotations

from typing import Any

from torchreel._version import __version__
from torchreel.web.query import Query
from torchreel.web.questions.counters import counter_names
from torchreel.web.tiles import WIDTH
from torchreel.web.viewed_reel import ViewedReel

_MARKS = 500


def about(viewed: ViewedReel, query: Query) -> Any:
    head = viewed.summary
    return {
        "version": __version__,
        "reel": head.reel,
        "origin_ns": viewed.origin,
        "end": viewed.end,
        "tile": WIDTH,
        "summary": head.as_dict(),
        "processes": viewed.reel.process_rows(),
        "steps": _steps(viewed),
        "marks": _marks(viewed),
        "counters": counter_names(viewed) if head.recorded["counters"] else [],
        "compared": None if viewed.other is None else str(viewed.other.path),
    }


def lanes(viewed: ViewedReel, query: Query) -> Any:
    """What the timeline is made of: the lanes and the labels by whose numbers tiles name them."""
    shown = viewed.lanes_without(query.words("hide"))
    found = [[lane.process, lane.thread, lane.depth, lane.is_async] for lane in shown]
    labels = [label if label[2] else label[:2] for label in viewed.labels]
    return {"lanes": found, "labels": labels, "threads": viewed.threads()}


def _steps(viewed: ViewedReel) -> list[list[int]]:
    """Number, beginning and end of the steps of the first process that has some."""
    table = viewed.reel.table("steps")
    processes, numbers, begins, ends = (table[name].to_pylist() for name in ("process", "step", "start_ns", "end_ns"))
    return [
        [number, begin - viewed.origin, end - viewed.origin]
        for process, number, begin, end in zip(processes, numbers, begins, ends, strict=True)
        if process == processes[0]
    ]


def _marks(viewed: ViewedReel) -> list[dict[str, Any]]:
    rows = viewed.reel.table("marks").to_pylist()[:_MARKS]
    return [{"time": row["time_ns"] - viewed.origin, "name": row["name"]} for row in rows]
