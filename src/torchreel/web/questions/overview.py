"""Where did the time go, and what next?"""

from __future__ import annotations

import itertools
from typing import Any

from torchreel.analyze import averages, device_busy, findings, phases, typical_step
from torchreel.analyze.source.lines import user_lines
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel

_POINTS = 400


def overview(viewed: ViewedReel, query: Query) -> Any:
    reel, origin = viewed.reel, viewed.origin
    step = typical_step(reel)
    return {
        "step": None if step is None else step.as_dict(),
        "steps": [
            {**row, "start_ns": row["start_ns"] - origin, "end_ns": row["end_ns"] - origin}
            for row in phases(reel).to_pylist()
            if row["step"] is not None and (step is None or row["process"] == step.process)
        ],
        "findings": [finding.as_dict() for finding in findings(reel)],
        "ops": averages(reel, "name", limit=10).to_pylist(),
        "modules": averages(reel, "module", limit=10).to_pylist() if viewed.has_rows("modules") else [],
        "lines": user_lines(reel).slice(0, 8).to_pylist() if viewed.has_rows("stacks") else [],
        "memory": _memory_curve(viewed),
        "devices": device_busy(reel).to_pylist(),
    }


def _memory_curve(viewed: ViewedReel) -> Any:
    """The most memory in each part of the run, and the peak."""
    curve = viewed.curve
    if curve is None or not len(curve.times):
        return None
    peak = int(curve.totals.argmax())
    edges = [viewed.end * n // _POINTS for n in range(_POINTS + 1)]
    before = curve.times.searchsorted(edges)
    tops = [
        int(curve.totals[max(int(a) - 1, 0) : max(int(b), int(a), 1)].max()) if b > 0 else 0
        for a, b in itertools.pairwise(before)
    ]
    return {"most": tops, "peak": int(curve.totals[peak]), "peak_at": int(curve.times[peak])}
