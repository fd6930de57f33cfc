"""The tour: the files in the order in which the run entered them."""

from __future__ import annotations

from html import escape

from torchreel.atlas.site.bars import bar, scale_of
from torchreel.atlas.site.facts import Site, TourFacts, TourStop
from torchreel.atlas.site.format import time_text, writable
from torchreel.atlas.site.frame import framed
from torchreel.atlas.site.parts import bare_table, cost_cells, cost_heads, legend, link
from torchreel.atlas.site.prose import inline

_BAR = 160  # pixels


def tour_page(facts: TourFacts, site: Site) -> str:
    """The whole page."""
    scale = scale_of((stop.costs for stop in facts.stops), below=True)
    script = f"<code>{escape(facts.script)}</code>" if facts.script else "the run"
    lead = f"The files in the order in which {script} entered them, each with its functions in that order."
    body = f'<header class="head">\n<h1>Tour</h1>\n<p class="lead">{lead}</p>\n</header>\n'
    if facts.stops:
        stops = "".join([_stop(stop, scale) for stop in facts.stops])
        body += f'{legend("split")}<ol class="tour">\n{stops}</ol>\n'
    else:
        body += '<p class="empty">The run entered no file of this site\'s roots.</p>\n'
    return framed(site, facts.page, f"Tour · {site.title}", writable(body))


def _stop(stop: TourStop, scale: int) -> str:
    doc = f'<p class="prose">{inline(stop.doc)}</p>\n' if stop.doc else ""
    step = f", in step {stop.step:,}" if stop.step is not None else ""
    counts = (
        f'<p class="counts">Entered after {time_text(stop.at_ns)}{step}. {time_text(stop.costs.self_ns)} self, '
        f"{time_text(stop.costs.total_ns)} total. {bar(stop.costs, scale, _BAR, True)}</p>\n"
    )
    return f'<li class="panel">\n<h2>{link(stop.link)}</h2>\n{doc}{counts}{_functions(stop, scale)}</li>\n'


def _functions(stop: TourStop, scale: int) -> str:
    if not stop.functions:
        return ""
    cells = [
        f'<td class="n">{row.line}</td><td class="cut"><code>{link(row.link)}</code></td>'
        f"{cost_cells(row.costs, scale, below=True)}"
        for row in stop.functions
    ]
    heads = f'<th class="n line">line</th><th class="wide">function</th>{cost_heads()}'
    return bare_table(heads, cells, "grid fixed") + "\n"
