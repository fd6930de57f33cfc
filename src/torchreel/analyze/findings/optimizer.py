"""The rule `optimizer`: an optimizer that has a fused kernel takes its steps op by op.

A fused kernel passes over the parameters once, where each op passes over them again. Saves at most the optimizer's time
less that of the op that writes the parameters, which a fused kernel does as well.
"""

from __future__ import annotations

from torchreel.analyze.findings.finding import Evidence, Finding
from torchreel.analyze.findings.run import Run
from torchreel.analyze.units import percent_text, time_text

RULE = "optimizer"

# Those with fused=True for tensors of the CPU.
_FUSED = ("Adagrad", "Adam", "AdamW", "SGD")
# What writes the parameters, once for each of them, or for each list of them.
_UPDATES = ("aten::addcdiv_", "aten::_foreach_addcdiv_", "aten::add_", "aten::_foreach_add_")


def find(run: Run) -> Finding | None:
    classes = ", ".join(f"'Optimizer.step#{name}.step'" for name in _FUSED)
    ops = run.rows(
        "SELECT s.name AS step_name, o.name, count(*) AS calls, sum(o.dur_ns)::BIGINT AS ns FROM ops AS o"
        " JOIN ops AS s ON s.process = o.process AND s.id = o.parent"
        f" WHERE s.name IN ({classes}) AND s.{run.calls.replace('AND step', 'AND s.step')} AND o.kind = 'op'"
        " GROUP BY ALL ORDER BY ns DESC, o.name"
    )
    if not ops or any(row["name"].startswith("aten::_fused_") for row in ops):
        return None
    found = {row["name"]: row for row in ops}
    update = next((found[name] for name in _UPDATES if name in found), None)
    takes = run.step.phase_ns["optimizer"]
    if update is None or len(ops) < 2:
        return None
    saves = takes - round(run.per_step(update["ns"]))
    if saves <= 0:
        return None
    calls = round(run.per_step(sum(row["calls"] for row in ops)))
    name = ops[0]["step_name"].removeprefix("Optimizer.step#").removesuffix(".step")
    return Finding(
        rule=RULE,
        title=f"{name} step by step",
        sentence=f"{name} takes {time_text(takes)} of {run.what} ({percent_text(run.share(takes))}) with {calls:,} "
        f"ops; {update['name']}, which writes the parameters, is {time_text(takes - saves)} of it.",
        cure=f"torch.optim.{name}(..., fused=True) runs one kernel instead.",
        saves_ns=saves,
        percent=run.share(saves),
        evidence=tuple(
            Evidence(row["name"], f"{row['calls']:,} calls, {time_text(row['ns'])}", "ops", row["name"])
            for row in ops[:3]
        ),
    )
