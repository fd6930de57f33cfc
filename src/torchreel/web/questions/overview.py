"""Where did the time go, and what next?"""

from __future__ import annotations

import itertools
from typing import Any

from torchreel.analyze import averages, device_busy, findings, phases
from torchreel.analyze.source.lines import user_lines
from torchreel.analyze.time.phases import average_step, steps_of
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel

_POINTS = 400
_MOST_CALLS = 1_000_000
"""Beyond this, ops, modules, lines and findings are those of a part of the run, and the page says of which."""
_LEAST_STEPS = 3


def overview(viewed: ViewedReel, query: Query) -> Any:
    reel, origin = viewed.reel, viewed.origin
    table = phases(reel)
    steps = steps_of(table)
    step = average_step(steps)
    part = _part(viewed, steps)
    within = None if part is None else (part[0]["start_ns"], part[-1]["end_ns"])
    return {
        "step": None if step is None else step.as_dict(),
        "steps": [
            {**row, "start_ns": row["start_ns"] - origin, "end_ns": row["end_ns"] - origin}
            for row in table.to_pylist()
            if row["step"] is not None and (step is None or row["process"] == step.process)
        ],
        "part": None if part is None else [part[0]["step"], part[-1]["step"]],
        "findings": [finding.as_dict() for finding in findings(reel, table, within)],
        "ops": averages(reel, "name", limit=10, within=within).to_pylist(),
        "modules": averages(reel, "module", limit=10, within=within).to_pylist() if viewed.has_rows("modules") else [],
        "lines": user_lines(reel, within).slice(0, 8).to_pylist() if viewed.has_rows("stacks") else [],
        "memory": _memory_curve(viewed),
        "devices": device_busy(reel).to_pylist(),
    }


def _part(viewed: ViewedReel, steps: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Of a long run, the steps in the middle that what is added up call by call is of; None for the whole run."""
    calls = viewed.calls
    if calls <= _MOST_CALLS or len(steps) < _LEAST_STEPS:
        return None
    count = max(_LEAST_STEPS, len(steps) * _MOST_CALLS // calls)
    first = (len(steps) - count) // 2
    return steps[first : first + count] if count < len(steps) else None


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
