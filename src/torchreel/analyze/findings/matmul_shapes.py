"""The rule `matmul_shapes`: matrix products of some shapes run at a fraction of the rate of the others.

The usual rate is the median over the time in ops that have a FLOP formula. Saves at most the time of those below half
of it, less what they would take at the usual rate. Needs --shapes and --flops.
"""

from __future__ import annotations

from typing import Any

from torchreel.analyze.findings.finding import Evidence, Finding
from torchreel.analyze.findings.run import Run
from torchreel.analyze.units import percent_text, time_text

RULE = "matmul_shapes"


def find(run: Run) -> Finding | None:
    rows = run.rows(
        "SELECT o.name, coalesce(i.dims, '') AS dims, count(*) AS calls, sum(o.self_ns)::BIGINT AS ns,"
        " sum(o.flops)::DOUBLE AS flops FROM ops AS o"
        " LEFT JOIN inputs AS i ON i.process = o.process AND i.id = o.inputs"
        f" WHERE o.flops > 0 AND o.self_ns > 0 AND o.{run.calls.replace('AND step', 'AND o.step')}"
        " GROUP BY ALL ORDER BY ns DESC, o.name, dims"
    )
    if len(rows) < 2:
        return None
    usual = _usual_rate(rows)
    slow = [row for row in rows if row["flops"] / row["ns"] < usual / 2]
    saves = round(run.per_step(sum(row["ns"] - row["flops"] / usual for row in slow)))
    if not slow or saves <= 0:
        return None
    slow.sort(key=lambda row: row["flops"] / usual - row["ns"])
    first = slow[0]
    return Finding(
        rule=RULE,
        title=f"{first['name']} at {_rate(first)}",
        sentence=f"{_spoken(slow)} at less than half the usual rate of {usual:.3g} GFLOP/s: they take "
        f"{time_text(round(run.per_step(sum(row['ns'] for row in slow))))} of {run.what}, "
        f"{percent_text(run.share(saves))} of it for their shapes.",
        cure="Make narrow matrices wider (fewer, wider heads; a batch in one product), or join several small products.",
        saves_ns=saves,
        percent=run.share(saves),
        evidence=tuple(
            Evidence(row["name"], f"{row['dims']}: {_rate(row)}, {row['calls']:,} calls", "ops", row["name"])
            for row in slow[:3]
        ),
    )


def _usual_rate(rows: list[dict[str, Any]]) -> float:
    """FLOPs per nanosecond, which is GFLOP/s: the median by time."""
    ranked = sorted(rows, key=lambda row: row["flops"] / row["ns"])
    half = sum(row["ns"] for row in rows) / 2
    for row in ranked:
        half -= row["ns"]
        if half <= 0:
            return float(row["flops"] / row["ns"])
    raise AssertionError("the parts add up to the whole")


def _rate(row: dict[str, Any]) -> str:
    return f"{row['flops'] / row['ns']:.3g} GFLOP/s"


def _spoken(slow: list[dict[str, Any]]) -> str:
    return "One shape runs" if len(slow) == 1 else f"{len(slow)} shapes run"
