"""The pages of operators: one for each, and the table of all."""

from __future__ import annotations

from torchreel.atlas.model import Link
from torchreel.atlas.site import paths
from torchreel.atlas.site.bars import scale_of
from torchreel.atlas.site.facts import OpFacts, OpsIndexFacts, Site
from torchreel.atlas.site.frame import framed, rendered
from torchreel.atlas.site.sections import COMMANDS


def op_page(facts: OpFacts, site: Site) -> str:
    """The whole page of an operator."""
    body = rendered(
        "op.html",
        facts=facts,
        commands=COMMANDS,
        lines_scale=scale_of(row.costs for row in facts.lines),
        shapes_scale=scale_of(row.costs for row in facts.shapes),
    )
    trail = [Link("Operators", paths.href(facts.page, OpsIndexFacts([]).page))]
    return framed(site, facts.page, f"{facts.name} · {site.title}", body, trail)


def ops_page(facts: OpsIndexFacts, site: Site) -> str:
    """The whole page of all operators."""
    body = rendered(
        "ops.html",
        facts=facts,
        costed=any(row.costs is not None for row in facts.rows),
        scale=scale_of(row.costs for row in facts.rows),
    )
    return framed(site, facts.page, f"Operators · {site.title}", body)
