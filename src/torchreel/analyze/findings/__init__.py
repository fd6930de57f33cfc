"""Findings: what could be saved of a run, the most first, each by a rule in a file of its own.

A rule is a module with its name, RULE, and find(run), which gives a Finding or None. What would save under 2 % of a
step, or less than the spread between steps, is not said.
"""

from __future__ import annotations

import pyarrow as pa

from torchreel.analyze.connection import Range
from torchreel.analyze.findings import data, matmul_shapes, optimizer, tiny_ops
from torchreel.analyze.findings.finding import Evidence, Finding
from torchreel.analyze.findings.run import opened_run
from torchreel.reel import Reel

__all__ = ["RULES", "Evidence", "Finding", "findings"]

RULES = (data, tiny_ops, matmul_shapes, optimizer)

_LEAST_PERCENT = 2.0


def findings(reel: Reel, table: pa.Table | None = None, within: Range | None = None) -> list[Finding]:
    """What the rules found, by what it would save.

    `table` is what phases() gave, if it is known; with a range, the rules look at the calls of the steps in it.
    """
    with opened_run(reel, table, within) as run:
        if run is None:
            return []
        found = [finding for rule in RULES if (finding := rule.find(run)) is not None]
        heard = [each for each in found if each.percent >= _LEAST_PERCENT and each.saves_ns > run.step.spread_ns]
    return sorted(heard, key=lambda each: (-each.saves_ns, each.rule))
