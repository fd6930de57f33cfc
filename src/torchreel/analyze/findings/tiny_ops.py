"""The rule `tiny_ops`: a step is made of so many small ops that Python between them costs.

Saves at most the time of a step in which no op was running. It speaks if a step has at least 100 outermost ops and nine
in ten ops without ops of their own take under 20 us.
"""

from __future__ import annotations

from torchreel.analyze.findings.finding import Evidence, Finding
from torchreel.analyze.findings.run import Run
from torchreel.analyze.units import percent_text, time_text

RULE = "tiny_ops"

_LEAST_OPS = 100
_TINY_NS = 20_000


def find(run: Run) -> Finding | None:
    between = run.step.phase_ns["no_op"]
    ops = run.rows(
        "SELECT count(*) AS ops, count(*) FILTER (WHERE self_ns = dur_ns) AS leaves,"
        f" count(*) FILTER (WHERE self_ns = dur_ns AND dur_ns < {_TINY_NS}) AS tiny"
        f" FROM ops WHERE {run.calls} AND kind IN ('op', 'custom', 'torchscript')"
    )[0]
    if between <= 0 or run.per_step(ops["ops"]) < _LEAST_OPS or ops["tiny"] < 0.9 * ops["leaves"]:
        return None
    per_step = round(run.per_step(ops["ops"]))
    share = 100 * ops["tiny"] // ops["leaves"]
    return Finding(
        rule=RULE,
        title="Many tiny ops",
        sentence=f"{time_text(between)} of {run.what} "
        f"({percent_text(run.share(between))}) passes between ops: it has {per_step:,} of them, "
        f"{share} % take under 20 us.",
        cure="torchreel.graphed(model) replays them without Python between them; larger batches make each op larger.",
        saves_ns=between,
        percent=run.share(between),
        evidence=tuple(
            Evidence(row["name"], f"{row['calls']:,} calls, {time_text(row['average_ns'])} each", "ops", row["name"])
            for row in run.rows(
                "SELECT name, count(*) AS calls, round(avg(dur_ns))::BIGINT AS average_ns FROM ops"
                f" WHERE {run.calls} AND kind = 'op' AND self_ns = dur_ns AND dur_ns < {_TINY_NS}"
                " GROUP BY name ORDER BY calls DESC, name LIMIT 3"
            )
        ),
    )
