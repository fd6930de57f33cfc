"""Pieces of HTML that several pages share: links, cells of tables, cards and legends.

Texts come in as they are and are escaped here; what is returned is HTML. A site has thousands of such pieces, so they
are joined plainly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from torchreel.atlas.model import Costs, Link
from torchreel.atlas.site.bars import bar
from torchreel.atlas.site.facts import CostRow
from torchreel.atlas.site.format import bytes_text, flops_text, percent_text, time_text
from torchreel.atlas.site.performance import total_backward

NEW_LINE = "\n"
_BAR = 64  # pixels
_DASH = "\u2013"


def link(to: Link) -> str:
    """A text with its link, if it has one, and its note."""
    text = f'<a href="{escape(to.href)}">{escape(to.text)}</a>' if to.href else escape(to.text)
    return f"{text} <small>{escape(to.note)}</small>" if to.note else text


def links(all_of_them: Sequence[Link], empty: str) -> str:
    """A list of links, or what is said if there are none."""
    if not all_of_them:
        return empty_text(empty)
    return listed(map(link, all_of_them))


def listed(items: Iterable[str]) -> str:
    """A list; its items are HTML."""
    return f'<ul class="links">\n{"".join([f"<li>{item}</li>{NEW_LINE}" for item in items])}</ul>\n'


def empty_text(text: str) -> str:
    return f'<p class="empty">{escape(text)}</p>\n'


def table(heads: str, rows: Iterable[str], kind: str = "") -> str:
    """A table in its frame; heads and rows are HTML."""
    classes = f"grid {kind}" if kind else "grid"
    return f'<div class="panel">{bare_table(heads, rows, classes)}</div>\n'


def bare_table(heads: str, rows: Iterable[str], classes: str) -> str:
    body = "".join([f"<tr>{row}</tr>\n" for row in rows])
    return f'<table class="{classes}">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>'


def command(lines: Iterable[str]) -> str:
    return f'<pre class="command">{escape(NEW_LINE.join(lines))}</pre>\n'


def time_cell(ns: int) -> str:
    return f'<td class="n{"" if ns else " zero"}" data-value="{ns}">{time_text(ns)}</td>'


def count_cell(value: int) -> str:
    return f'<td class="n{"" if value else " zero"}" data-value="{value}">{value:,}</td>'


def coded(row: CostRow) -> str:
    """The cell of a line: where it is, and its text."""
    code = f'<code title="{escape(row.code)}">{escape(row.code)}</code>' if row.code else ""
    return f'<td class="cut">{link(row.link)}{code}</td>'


def cost_heads(backward: str = "total", more: bool = False) -> str:
    """The heads of a cost's columns.

    `backward` is of what its part in backward is shown: "total", "self" or nothing; `more` adds what was allocated and
    computed.
    """
    of_self = '<th class="n">backward</th>' if backward == "self" else ""
    of_total = '<th class="n part">of it backward</th>' if backward == "total" else ""
    rest = '<th class="n more">allocated</th><th class="n more">FLOPs</th>' if more else ""
    return (
        f'<th class="drawn"></th><th class="n">self</th>{of_self}<th class="n">total</th>{of_total}'
        f'<th class="n">calls</th>{rest}'
    )


def cost_cells(
    costs: Costs | None, scale: int, backward: str = "total", more: bool = False, below: bool = False
) -> str:
    """The cells under these heads; dashes, where nothing was recorded."""
    if costs is None:
        return "<td></td>" + f'<td class="n none" title="not recorded">{_DASH}</td>' * (3 + bool(backward) + 2 * more)
    of_self = time_cell(costs.backward_ns) if backward == "self" else ""
    of_total = _part_cell(total_backward(costs)) if backward == "total" else ""
    return (
        f'<td class="drawn">{bar(costs, scale, _BAR, below)}</td>{time_cell(costs.self_ns)}{of_self}'
        f"{time_cell(costs.total_ns)}{of_total}{count_cell(costs.calls)}{_more_cells(costs) if more else ''}"
    )


def _part_cell(ns: int | None) -> str:
    """A time that may be unknown though the others of its row are known."""
    return f'<td class="n none" title="not known">{_DASH}</td>' if ns is None else time_cell(ns)


def _more_cells(costs: Costs) -> str:
    zero = "" if costs.alloc_bytes else " zero"
    return (
        f'<td class="n{zero}" data-value="{costs.alloc_bytes}">{bytes_text(costs.alloc_bytes, 1)}</td>'
        f'<td class="n" data-value="{costs.flops or 0}">{flops_text(costs.flops)}</td>'
    )


def legend(below: str = "") -> str:
    """What the colours of bars mean; `below`: what they show of the calls below, "split" into forward and backward,
    "whole", or nothing."""
    rest = ""
    if below == "split":
        rest = (
            ' <b>in the calls below:</b> <span class="swatch tf"></span>forward <span class="swatch tb"></span>backward'
        )
    elif below:
        rest = ' <span class="swatch t"></span>in the calls below'
    return f'<p class="legend"><span class="swatch f"></span>forward <span class="swatch b"></span>backward{rest}</p>\n'


def cards(costs: Costs, whole: bool = False) -> str:
    """The numbers of a cost, each on a card; `whole`: of a run as a whole, whose total is its self."""
    own = time_text(costs.self_ns)
    shown = [("time in ops" if whole else "self", own)]
    if whole:
        shown.append(("forward", _share(costs.forward_ns, costs.self_ns)))
        shown.append(("backward", _share(costs.backward_ns, costs.self_ns)))
    elif costs.total_backward_ns is None:
        shown.append(("forward part", _share(costs.forward_ns, costs.self_ns)))
        shown.append(("backward part", _share(costs.backward_ns, costs.self_ns)))
        shown.append(("total", time_text(costs.total_ns)))
    else:
        shown.append(("backward of self", _share(costs.backward_ns, costs.self_ns)))
        shown.append(("total", time_text(costs.total_ns)))
        shown.append(("backward of total", _share(costs.total_backward_ns, costs.total_ns)))
    shown.append(("calls", f"{costs.calls:,}"))
    shown.append(("allocated", bytes_text(costs.alloc_bytes, 1)))
    if costs.flops is not None:
        shown.append(("FLOPs", flops_text(costs.flops)))
    # Numbers and words of ours alone: there is nothing to escape.
    rows = "".join([f"<div><dt>{name}</dt><dd>{value}</dd></div>\n" for name, value in shown])
    return f'<dl class="cards">\n{rows}</dl>\n'


def _share(part: int, whole: int) -> str:
    text = percent_text(part, whole).replace("<", "&lt;")
    return f"{time_text(part)} <small>{text}</small>"


def facts_list(facts: Iterable[tuple[str, str]]) -> str:
    """Facts of a page's head; the values are HTML."""
    rows = "".join([f"<div><dt>{name}</dt><dd>{value}</dd></div>\n" for name, value in facts])
    return f'<dl class="facts">\n{rows}</dl>\n'


def section(heading: str, anchor: str, body: str) -> str:
    """A section under its heading; the body is HTML."""
    return f'<section>\n<h2 id="{anchor}">{heading}</h2>\n{body}</section>\n'
