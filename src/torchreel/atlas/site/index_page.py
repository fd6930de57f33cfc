"""The front page: the sources, the run, and where its time went."""

from __future__ import annotations

from html import escape

from torchreel.atlas.site.bars import scale_of
from torchreel.atlas.site.facts import CostRow, IndexFacts, RootRow, RunFacts, Site
from torchreel.atlas.site.format import bytes_text, count_text, percent_text, time_text, writable
from torchreel.atlas.site.frame import framed
from torchreel.atlas.site.parts import (
    bare_table,
    cards,
    coded,
    command,
    cost_cells,
    cost_heads,
    count_cell,
    empty_text,
    facts_list,
    legend,
    link,
    section,
    table,
)
from torchreel.atlas.site.sections import COMMANDS, NOT_RECORDED, language_text

_MEANINGS = (
    (
        "self",
        "The time of the ops that a line called itself: the line is the innermost of their stack. The self times of "
        "all lines add up to the time of all ops that were recorded with a stack.",
    ),
    (
        "total",
        "The time of all ops with the line anywhere in their stack, each counted once: what the line and all that it "
        "called spent. Totals overlap, and so do not add up.",
    ),
    (
        "backward",
        "The part that computed gradients: of self in the bars, of the total in the column beside it. It stands at the "
        "line whose forward call it belongs to, and not at <code>loss.backward()</code>.",
    ),
    ("calls", "How many ops were called."),
    ("allocated", "The bytes of all allocations that these ops made, whether they were freed or not."),
    ("FLOPs", "Floating point operations, by formulas. Where no formula is known there is no number."),
    (
        "0 and \u2013",
        "0 means that the run was recorded, and did not touch it. A dash means that nothing was recorded, or that it "
        "cannot be told: a kernel's total is not split.",
    ),
)


def index_page(facts: IndexFacts, site: Site) -> str:
    """The whole page."""
    files = count_text(sum(root.files for root in facts.roots), "file")
    roots = section("Sources", "roots", _roots(facts.roots, facts.run is not None))
    if facts.run is not None:
        parts = [_run_head(facts.run, site, files), _run(facts.run), roots, _ranks(facts)]
    else:
        lead = f"{files} of source: what they define, and who uses it."
        measure = f"<p>{NOT_RECORDED}</p>\n{command(COMMANDS)}"
        parts = [_head(site, lead, ""), "", roots, section("What does a line cost?", "measure", measure)]
    return framed(site, facts.page, site.title, writable("\n".join(parts)))


def _head(site: Site, lead: str, facts: str) -> str:
    return f'<header class="head">\n<h1>{escape(site.title)}</h1>\n<p class="lead">{lead}</p>\n{facts}</header>\n'


def _run_head(run: RunFacts, site: Site, files: str) -> str:
    rows = [
        ("Recorded", escape(run.recorded)),
        ("Reel", f"<code>{escape(run.reel)}</code>"),
        ("PyTorch", escape(run.torch)),
        *([("Steps", f"{run.steps:,}")] if run.steps is not None else []),
        ("Wall time", time_text(run.wall_ns)),
    ]
    lead = f"What <code>{escape(run.script)}</code> did, line by line, in {files} of source."
    return _head(site, lead, facts_list(rows))


def _run(run: RunFacts) -> str:
    notes = "".join([f'<p class="counts">{escape(note)}</p>\n' for note in run.notes])
    elsewhere = ""
    if run.elsewhere is not None and run.elsewhere.self_ns:
        share = escape(percent_text(run.elsewhere.self_ns, run.costs.self_ns))
        elsewhere = (
            f'<p class="counts">{time_text(run.elsewhere.self_ns)} of it ({share}) are of lines in files that are in '
            "no root of this site. They are in the tables, and on no page.</p>\n"
        )
    return section("The run", "run", f"{notes}{cards(run.costs, whole=True)}{elsewhere}")


def _roots(rows: list[RootRow], costed: bool) -> str:
    scale = scale_of(row.costs for row in rows)
    cells = []
    for row in rows:
        languages = ", ".join(
            [f"{escape(language_text(one))} <small>{count:,}</small>" for one, count in row.languages]
        )
        cells.append(
            f'<td class="name">{link(row.link)}</td><td>{languages}</td>{count_cell(row.files)}{count_cell(row.lines)}'
            f'<td class="n">{bytes_text(row.bytes, 1)}</td>{count_cell(row.symbols)}'
            f"{cost_cells(row.costs, scale) if costed else ''}"
        )
    heads = (
        '<th>root</th><th class="wide">languages</th><th class="n">files</th><th class="n">lines</th>'
        '<th class="n">bytes</th><th class="n">symbols</th>'
    )
    return table(heads + (cost_heads() if costed else ""), cells)


def _ranks(facts: IndexFacts) -> str:
    ranks = [
        _costliest("lines", facts.lines, "No line of a root cost anything."),
        _costliest("functions", facts.functions, "No function of a root cost anything."),
        _costliest("files", facts.files, "No file of a root cost anything."),
        _costliest("ops", facts.ops, "No op was recorded with a stack.", backward=""),
    ]
    meanings = "".join([f"<div><dt>{name}</dt><dd>{meaning}</dd></div>\n" for name, meaning in _MEANINGS])
    told = section("What the numbers mean", "numbers", f'<dl class="meanings">\n{meanings}</dl>\n')
    return f'{legend()}<div class="ranks">\n{"".join(ranks)}</div>\n{told}'


def _costliest(what: str, rows: list[CostRow], empty: str, backward: str = "total") -> str:
    body = empty_text(empty)
    if rows:
        scale = scale_of(row.costs for row in rows)
        cells = [coded(row) + cost_cells(row.costs, scale, backward) for row in rows]
        heads = f'<th class="wide">{what.removesuffix("s")}</th>{cost_heads(backward)}'
        body = bare_table(heads, cells, "grid fixed") + "\n"
    return f'<section class="panel ranked">\n<h2 id="{what}">Costliest {what}</h2>\n{body}</section>\n'
