"""The pages of operators: one for each, and the table of all."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from torchreel.atlas.model import Costs, Link
from torchreel.atlas.site import paths
from torchreel.atlas.site.bars import scale_of
from torchreel.atlas.site.facts import OpFacts, OpsIndexFacts, OverloadFacts, Site
from torchreel.atlas.site.format import bytes_text, count_text, time_text, writable
from torchreel.atlas.site.frame import framed
from torchreel.atlas.site.parts import (
    cards,
    coded,
    command,
    cost_cells,
    cost_heads,
    count_cell,
    empty_text,
    legend,
    link,
    section,
    table,
)
from torchreel.atlas.site.sections import COMMANDS

_NOT_RECORDED = "This site was made without a recording. These commands measure what each op costs:"


def op_page(facts: OpFacts, site: Site) -> str:
    """The whole page of an operator."""
    overloads = "".join(map(_overload, facts.overloads)) or empty_text("No overloads are known.")
    parts = [
        f'<header class="head">\n<h1>{escape(facts.name)}</h1>\n</header>\n{section("Cost", "cost", _cost(facts))}'
    ]
    if facts.costs is not None:
        parts.append(section("Where it ran", "lines", _lines(facts)))
        parts.append(section("Shapes of its inputs", "shapes", _shapes(facts)))
    parts.append(section("Overloads", "overloads", overloads))
    trail = [Link("Operators", paths.href(facts.page, OpsIndexFacts([]).page))]
    return framed(site, facts.page, f"{facts.name} · {site.title}", writable("\n".join(parts)), trail)


def ops_page(facts: OpsIndexFacts, site: Site) -> str:
    """The whole page of all operators."""
    costed = any(row.costs is not None for row in facts.rows)
    scale = scale_of(row.costs for row in facts.rows)
    cells = []
    for row in facts.rows:
        costs = count_cell(row.lines) + cost_cells(row.costs, scale, "self", more=True) if costed else ""
        cells.append(f'<td class="cut"><code>{link(row.link)}</code></td>{count_cell(row.overloads)}{costs}')
    heads = '<th class="wide">operator</th><th class="n count">overloads</th>'
    if costed:
        heads += f'<th class="n count">lines</th>{cost_heads("self", more=True)}'
    lead = f"{count_text(len(facts.rows), 'operator')} that ran or are registered in the sources."
    body = f'<header class="head">\n<h1>Operators</h1>\n<p class="lead">{lead}</p>\n</header>\n'
    if not facts.rows:
        body += empty_text("No operator ran, and the sources register none.")
    else:
        body += f"{legend() if costed else ''}{table(heads, cells, 'fixed sortable')}"
    return framed(site, facts.page, f"Operators · {site.title}", writable(body))


def _cost(facts: OpFacts) -> str:
    if facts.costs is None:
        return f"<p>{_NOT_RECORDED}</p>\n{command(COMMANDS)}"
    if not facts.costs.calls:
        return empty_text("The run was recorded, and did not call it.")
    if facts.backward is None:
        return cards(facts.costs)
    return f'{cards(facts.costs)}<p class="counts">{_backward(facts.backward)}</p>\n'


def _backward(costs: Costs) -> str:
    if not costs.calls:
        return "No backward of it was recorded."
    return (
        f"Its backward, with all calls below: {time_text(costs.self_ns)} in {count_text(costs.calls, 'call')}, "
        f"{bytes_text(costs.alloc_bytes, 1)} allocated."
    )


def _lines(facts: OpFacts) -> str:
    if not facts.lines:
        return empty_text("No line called it.")
    return legend() + _costed("line", [(coded(row), row.costs) for row in facts.lines])


def _shapes(facts: OpFacts) -> str:
    if not facts.shapes:
        return '<p class="empty">No shapes were recorded: <code>torchreel record --shapes</code> records them.</p>\n'
    return _costed("shapes", [(f"<td><code>{escape(row.shapes)}</code></td>", row.costs) for row in facts.shapes])


def _costed(head: str, rows: Sequence[tuple[str, Costs]]) -> str:
    """A table of costs; the first cell of each row is HTML."""
    scale = scale_of(costs for _, costs in rows)
    cells = [first + cost_cells(costs, scale, "self", more=True) for first, costs in rows]
    return table(f'<th class="wide">{head}</th>{cost_heads("self", more=True)}', cells, "fixed sortable")


def _overload(row: OverloadFacts) -> str:
    spent = ""
    if row.costs is not None:
        called = f"{time_text(row.costs.self_ns)} self, {count_text(row.costs.calls, 'call')}"
        spent = f" <small>{called if row.costs.calls else 'not called'}</small>"
    unknown = empty_text("Its schema is in none of the tables of PyTorch that were read.")
    schema = f'<pre class="schema">{escape(row.schema)}</pre>\n' if row.schema else unknown
    kernels = [f'<span class="tag">{escape(one.keys)}</span> <code>{link(one.kernel)}</code>' for one in row.kernels]
    formulas = [f"<code>{escape(one.argument)}: {escape(one.formula)}</code>" for one in row.derivatives]
    details = [
        ("Kernels", _items(kernels, "No kernel is named for it in the dispatch table.")),
        ("Derivatives", _items(formulas, "No formula is written for it in the table of derivatives.")),
    ]
    if row.registered:
        details.append(("Registered", _items([link(to) for to in row.registered], "")))
    told = "".join([f"<div><dt>{name}</dt><dd>{value}</dd></div>\n" for name, value in details])
    return (
        f'<article class="panel overload">\n<h3>{escape(row.name)}{spent}</h3>\n{schema}<dl class="details">\n{told}'
        "</dl>\n</article>\n"
    )


def _items(items: Sequence[str], empty: str) -> str:
    if not items:
        return f'<span class="empty">{empty}</span>'
    return f"<ul>{''.join([f'<li>{item}</li>' for item in items])}</ul>"
