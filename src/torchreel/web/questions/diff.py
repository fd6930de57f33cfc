"""What changed from this reel to the other?"""

from __future__ import annotations

from typing import Any

import numpy as np

from torchreel import analyze
from torchreel.analyze.diff import compared_steps, module_changes
from torchreel.analyze.time.phases import PHASES
from torchreel.errors import OptionError
from torchreel.reel import Reel
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel


def diff(viewed: ViewedReel, query: Query) -> Any:
    """The changes by name, inputs, module or line; the steps of both; with tree=1 the ops within their modules."""
    if viewed.other is None:
        raise OptionError("There is no second reel: start with 'torchreel view a.reel b.reel'.")
    found = analyze.diff(viewed.reel, viewed.other, query.text("by", "name")).as_dict()
    return {
        **found,
        "steps": _steps(viewed.reel, viewed.other),
        "tree": module_changes(viewed.reel, viewed.other).to_pylist() if "tree" in query else None,
    }


def _steps(a: Reel, b: Reel) -> dict[str, Any]:
    """How long each step took, and how the phases of a step changed; nothing if the reels have none."""
    both = compared_steps(a, b)
    walls = [[row["end_ns"] - row["start_ns"] for row in rows] for rows in both]
    phases = []
    for phase in PHASES if all(both) else ():
        values = [np.array([row[f"{phase}_ns"] for row in rows], np.float64) for rows in both]
        means = [float(each.mean()) for each in values]
        spread = max(float(each.std()) for each in values)
        phases.append({"phase": phase, "a_ns": means[0], "b_ns": means[1], "spread_ns": spread})
    return {"a": walls[0], "b": walls[1], "phases": phases}
