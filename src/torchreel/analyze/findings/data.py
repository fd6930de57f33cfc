"""The rule `data`: a step waits for its data.

Saves at most the time of a step in the DataLoader: data that is ready when it is asked for costs nothing.
"""

from __future__ import annotations

from torchreel.analyze.findings.finding import Evidence, Finding
from torchreel.analyze.findings.run import Run
from torchreel.analyze.units import percent_text, time_text

RULE = "data"


def find(run: Run) -> Finding | None:
    waits = run.step.phase_ns["data"]
    if waits <= 0:
        return None
    loaders = run.rows(
        f"SELECT name, count(*) AS calls, sum(dur_ns)::BIGINT AS ns FROM ops WHERE {run.calls}"
        " AND starts_with(name, 'enumerate(DataLoader)#') GROUP BY name ORDER BY ns DESC, name"
    )
    alone = any("_SingleProcess" in row["name"] for row in loaders[:1])
    return Finding(
        rule=RULE,
        title="Waiting for data",
        sentence=f"{run.what.capitalize()} waits {time_text(waits)} for its DataLoader, "
        f"{percent_text(run.share(waits))} of its time"
        + (": batches are made by the training process itself." if alone else "."),
        cure="Give the DataLoader num_workers, so that batches are made beside the training."
        if alone
        else "Give the DataLoader more workers or a larger prefetch_factor, or make a batch cheaper to load.",
        saves_ns=waits,
        percent=run.share(waits),
        evidence=tuple(
            Evidence(row["name"], f"{row['calls']:,} batches, {time_text(row['ns'])}", "timeline", row["name"])
            for row in loaders[:3]
        ),
    )
