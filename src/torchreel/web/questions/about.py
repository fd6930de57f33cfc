"""What the page needs before it draws anything."""

from __future__ import annotations

from typing import Any

from torchreel._version import __version__
from torchreel.analyze import summary
from torchreel.web.query import Query
from torchreel.web.questions.counters import counter_names
from torchreel.web.tiles import WIDTH
from torchreel.web.viewed_reel import ViewedReel

_MARKS = 500


def about(viewed: ViewedReel, query: Query) -> Any:
    head = summary(viewed.reel)
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
        "counters": counter_names(viewed),
        "compared": None if viewed.other is None else str(viewed.other.path),
    }


def lanes(viewed: ViewedReel, query: Query) -> Any:
    """What the timeline is made of: the lanes and the labels by whose numbers tiles name them."""
    shown = viewed.lanes_without(query.words("hide"))
    found = [[lane.process, lane.thread, lane.depth, lane.is_async] for lane in shown]
    return {"lanes": found, "labels": list(viewed.labels), "threads": viewed.threads()}


def _steps(viewed: ViewedReel) -> list[dict[str, Any]]:
    return [
        {
            "process": row["process"],
            "step": row["step"],
            "begin": row["start_ns"] - viewed.origin,
            "end": row["end_ns"] - viewed.origin,
        }
        for row in viewed.reel.table("steps").to_pylist()
    ]


def _marks(viewed: ViewedReel) -> list[dict[str, Any]]:
    rows = viewed.reel.table("marks").to_pylist()[:_MARKS]
    return [{"time": row["time_ns"] - viewed.origin, "name": row["name"]} for row in rows]
