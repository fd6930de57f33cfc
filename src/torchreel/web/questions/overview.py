"""Where did the time go, and what next?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from torchreel.analyze import averages, device_busy, findings, phases
from torchreel.analyze.source.lines import user_lines
from torchreel.analyze.time.phases import PHASES, average_step, steps_of
from torchreel.web.memory_curve import outline_of
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel

_POINTS = 400
_COLUMNS = 200
_MOST_CALLS, _PART_CALLS = 200_000, 100_000
"""Beyond the first, ops, modules, lines and findings are those of a part of the run, and the page says of which: of
steps with about as many calls as the second."""
_LEAST_STEPS = 3


def overview(viewed: ViewedReel, query: Query) -> Any:
    reel, origin = viewed.reel, viewed.origin
    table = phases(reel)
    steps = steps_of(table)
    step = average_step(steps)
    part = _part(viewed, steps)
    within = None if part is None else (part[0]["start_ns"], part[-1]["end_ns"])
    memory = outline_of(reel, origin, viewed.end, _POINTS)
    return {
        "step": None if step is None else step.as_dict(),
        "columns": _columns(steps, origin),
        "part": None if part is None else [part[0]["step"], part[-1]["step"]],
        "findings": [finding.as_dict() for finding in findings(reel, table, within)],
        "ops": averages(reel, "name", limit=10, within=within).to_pylist(),
        "modules": averages(reel, "module", limit=10, within=within).to_pylist() if viewed.has_rows("modules") else [],
        "lines": user_lines(reel, within).slice(0, 8).to_pylist() if viewed.has_rows("stacks") else [],
        "memory": None if memory is None else asdict(memory),
        "devices": device_busy(reel).to_pylist() if viewed.has_rows("kernels") else [],
    }


def _columns(steps: list[dict[str, Any]], origin: int) -> list[dict[str, Any]]:
    """What is drawn of the steps: each of them, or of a long run the mean of so many that follow each other."""
    if not steps or steps[0]["step"] is None:
        return []
    times = {name: np.array([row[name] for row in steps], np.int64) for name in ("start_ns", "end_ns")}
    phases = {phase: np.array([row[f"{phase}_ns"] for row in steps], np.int64) for phase in PHASES}
    first = np.arange(0, len(steps), -(-len(steps) // _COLUMNS))
    counts = np.diff(np.append(first, len(steps)))
    walls = np.add.reduceat(times["end_ns"] - times["start_ns"], first) // counts
    means = {phase: np.add.reduceat(values, first) // counts for phase, values in phases.items()}
    return [
        {
            "first": steps[at]["step"],
            "last": steps[at + count - 1]["step"],
            "begin": steps[at]["start_ns"] - origin,
            "end": steps[at + count - 1]["end_ns"] - origin,
            "wall_ns": int(walls[number]),
            "phase_ns": {phase: int(values[number]) for phase, values in means.items()},
        }
        for number, (at, count) in enumerate(zip(first.tolist(), counts.tolist(), strict=True))
    ]


def _part(viewed: ViewedReel, steps: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Of a long run, the steps in the middle that what is added up call by call is of; None for the whole run."""
    calls = viewed.summary.ops
    if calls <= _MOST_CALLS or len(steps) < _LEAST_STEPS:
        return None
    count = max(_LEAST_STEPS, len(steps) * _PART_CALLS // calls)
    first = (len(steps) - count) // 2
    return steps[first : first + count] if count < len(steps) else None
