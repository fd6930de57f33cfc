"""The page of a file: what it is, what it defines, whom it knows, what a run cost in it, and its source."""

from __future__ import annotations

from functools import partial
from html import escape
from urllib.parse import quote

from markupsafe import Markup

from torchreel.atlas.model import FileFacts
from torchreel.atlas.site import paths
from torchreel.atlas.site.bars import bar, scale_of
from torchreel.atlas.site.facts import Site
from torchreel.atlas.site.format import shortened, time_text, writable
from torchreel.atlas.site.frame import framed, rendered, trail_to
from torchreel.atlas.site.outline import Entry, landmarks, outline
from torchreel.atlas.site.performance import MOST, costliest_functions, costliest_lines, live_lines, total_backward
from torchreel.atlas.site.prose import inline
from torchreel.atlas.site.sections import (
    COMMANDS,
    EMPTY,
    HEADINGS,
    STATES,
    by_kind,
    counts_text,
    id_of,
    looked_for_text,
    performance_text,
    touched,
)
from torchreel.atlas.site.source_lines import line_link, lines_of, source_lines
from torchreel.atlas.symbols import first_sentence

_BAR = 64  # pixels
_MANY = 1_000_000  # calls need a wider column


def file_page(facts: FileFacts, site: Site) -> str:
    """The whole page. `facts.body` is HTML already; all else is text."""
    name = facts.path.rpartition("/")[2]
    entries = outline(facts)
    headings = {heading: id_of(heading) for heading in HEADINGS}
    lines, functions, live = costliest_lines(facts), costliest_functions(facts), live_lines(facts)
    last = len(lines_of(facts.body))
    split = facts.costs is not None and total_backward(facts.costs) is not None
    above = rendered(
        "file.html",
        facts=facts,
        name=name,
        last=last,
        line=partial(line_link, last=last),
        ids=headings,
        twin=paths.href(facts.page, paths.twin(facts.root, facts.path)),
        states=STATES,
        empty=EMPTY,
        counts=counts_text(facts),
        entries=entries,
        structure=Markup(_structure(entries, last, facts.costs is not None, split)),
        split=split,
        registered=list(zip(facts.registrations, facts.registration_links, strict=True)),
        performance=performance_text(facts),
        commands=COMMANDS,
        touched=touched(facts),
        lines=lines[:MOST],
        all_lines=len(lines),
        functions=functions[:MOST],
        all_functions=len(functions),
        live=live[:MOST],
        all_live=len(live),
        looked_for=looked_for_text(facts, site),
        keywords=by_kind(facts.keywords),
        gutter=bool(lines),
    )
    contents = rendered("contents.html", ids=headings, landmarks=landmarks(entries))
    body = above + _source(facts, last, bool(lines), split) + "</section>\n"
    folder = facts.path.rpartition("/")[0]
    title = f"{name} · {facts.root}/{folder}" if folder else f"{name} · {facts.root}"
    return framed(site, facts.page, title, body, trail_to(facts.page, facts.root, facts.path), contents)


def _structure(entries: list[Entry], last: int, costed: bool, split: bool) -> str:
    """The rows of the table of symbols. A file can have thousands, so they are joined plainly."""
    scale = scale_of((entry.costs for entry in entries), below=True)
    rows = []
    for entry in entries:
        symbol = entry.symbol
        doc = shortened(first_sentence(symbol.doc)) if symbol.doc else ""
        rows.append(
            f'<tr><td class="n">{line_link(symbol.line, last)}</td>'
            f'<td class="kind">{escape(symbol.kind)}</td><td class="d{entry.depth}"><code>{_signature(entry)}</code>'
            f"{f'<p>{inline(doc)}</p>' if doc else ''}</td>{_costs(entry, scale, split) if costed else ''}</tr>\n"
        )
    return "".join(rows)


def _signature(entry: Entry) -> str:
    """The signature with its name as a link to the source; the name alone, where that is not in the signature."""
    symbol = entry.symbol
    link = f'<a href="#{escape(quote(writable(entry.anchor)))}">{escape(symbol.name)}</a>'
    at = _word(symbol.signature, symbol.name)
    if at < 0:
        return link
    return f"{escape(symbol.signature[:at])}{link}{escape(symbol.signature[at + len(symbol.name) :])}"


def _word(text: str, name: str) -> int:
    """Where a name stands as a whole word: `f` is not the end of `def`; -1 if nowhere."""
    at = text.find(name) if name else -1
    while at >= 0:
        end = at + len(name)
        if not (text[at - 1 : at].isalnum() or text[at - 1 : at] == "_") and not text[end : end + 1].isalnum():
            return at
        at = text.find(name, end)
    return -1


def _costs(entry: Entry, scale: int, split: bool) -> str:
    """The columns of a cost; with the backward part of the total, where that is known of the file."""
    costs = entry.costs
    if costs is None:
        return "<td></td>" + '<td class="n"></td>' * (4 if split else 3)
    times = (costs.self_ns, costs.total_ns, *((total_backward(costs),) if split else ()))
    numbers = [*((ns, "" if ns is None else time_text(ns)) for ns in times), (costs.calls, f"{costs.calls:,}")]
    cells = [f'<td class="n{"" if value else " zero"}">{text}</td>' for value, text in numbers]
    return f'<td class="drawn">{bar(costs, scale, _BAR, below=True)}</td>{"".join(cells)}'


def _source(facts: FileFacts, last: int, gutter: bool, split: bool) -> str:
    if not last:
        return ""
    digits = len(str(last))
    names = f"<i>self</i><i>total</i><i>{'of it backward' if split else ''}</i><i>calls</i>"
    head = f'<div class="names" aria-hidden="true"><span>{names}</span></div>\n' if gutter else ""
    many = any(costs.calls >= _MANY for costs in facts.line_costs.values())
    marks = {"costed": gutter, "split": gutter and split, "many": many}
    classes = " ".join(["source", f"digits{max(digits, 3)}", *(mark for mark, holds in marks.items() if holds)])
    return f'<div class="{classes}" translate="no">\n{head}{source_lines(facts)}</div>\n'
