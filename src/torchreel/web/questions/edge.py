"""Do two formats cost the same? The numbers of `torchreel edge`, and of `--compare` if two reels of it are open."""

from __future__ import annotations

from typing import Any

from torchreel.analyze.connection import opened
from torchreel.analyze.edge import edge_compare, edge_costs
from torchreel.reel import Reel
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel


def edge(viewed: ViewedReel, query: Query) -> Any:
    """What each of the reels says of its model, and how they compare; nothing of reels of other programs."""
    reels = [reel for reel in (viewed.reel, viewed.other) if reel is not None]
    sides = [_side(reel) for reel in reels]
    both = len(sides) == 2 and None not in sides
    return {
        "left": sides[0],
        "right": sides[1] if len(sides) == 2 else None,
        "comparison": edge_compare(reels[0], reels[1]).as_dict() if both else None,
    }


def _side(reel: Reel) -> dict[str, Any] | None:
    """A reel of a deployed model; None for any other."""
    told = reel.meta.get("edge")
    if not isinstance(told, dict):
        with opened(reel, ("ops",)) as connection:
            if not connection.sql("SELECT 1 FROM ops WHERE backend IS NOT NULL LIMIT 1").fetchall():
                return None
        told = {}
    return {
        "reel": str(reel.path),
        "model": _text(told.get("model")),
        "format": _text(told.get("format")),
        "remark": _text(told.get("remark")),
        **edge_costs(reel).as_dict(),
    }


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
