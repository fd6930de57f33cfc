"""What stands on the pages of operators."""

from __future__ import annotations

from collections.abc import Iterator

from torchreel.atlas.generate.line_links import Lines
from torchreel.atlas.model import Link
from torchreel.atlas.operators import Operators, Overload, PlacedKernel
from torchreel.atlas.site import paths
from torchreel.atlas.site.facts import (
    DerivativeRow,
    KernelRow,
    OpFacts,
    OpRow,
    OpsIndexFacts,
    OverloadFacts,
    ShapeRow,
)


def operator_pages(operators: Operators, recorded: bool, lines: Lines) -> Iterator[OpFacts]:
    """The page of each operator."""
    for operator in operators.found.values():
        page = paths.operator_page(operator.name)
        ran = operator.ran
        facts = OpFacts(
            operator.name,
            page,
            [_overload(page, operator.name, one, lines) for _, one in sorted(operator.overloads.items())],
        )
        if recorded and ran is not None:
            facts.costs, facts.backward = ran.costs, ran.backward
            facts.lines = [lines.row(page, path, line, each) for path, line, each in ran.lines]
            facts.shapes = [ShapeRow(shapes, each) for shapes, each in ran.shapes]
        yield facts


def _overload(page: str, name: str, overload: Overload, lines: Lines) -> OverloadFacts:
    return OverloadFacts(
        f"{name}.{overload.name}" if overload.name else name,
        overload.schema or "",
        [KernelRow(one.kernel.key, _kernel(page, one, lines)) for one in overload.kernels],
        [
            DerivativeRow(one.arguments + (f" ({one.key})" if one.key else ""), one.formula)
            for one in overload.derivatives
        ],
        [lines.link(page, (file, one.line)) for file, one in overload.registered],
        overload.costs,
    )


def _kernel(page: str, placed: PlacedKernel, lines: Lines) -> Link:
    name = placed.kernel.name
    return lines.link(page, placed.place, name) if placed.place is not None else Link(name)


def operators_index(operators: Operators, recorded: bool) -> OpsIndexFacts:
    """The table of all operators, the costliest first."""
    facts = OpsIndexFacts([])
    found = sorted(operators.found.values(), key=lambda one: (-one.costs.self_ns, one.name))
    facts.rows = [
        OpRow(
            Link(one.name, paths.href(facts.page, paths.operator_page(one.name))),
            len(one.overloads),
            len(one.ran.lines) if one.ran is not None else 0,
            one.costs if recorded else None,
        )
        for one in found
    ]
    return facts
