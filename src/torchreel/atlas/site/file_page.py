"""The page of a file: what it is, what it defines, whom it knows, what a run cost in it, and its source."""

from __future__ import annotations

from html import escape

from torchreel.atlas.model import FileFacts
from torchreel.atlas.site import paths
from torchreel.atlas.site.bars import bar, scale_of
from torchreel.atlas.site.facts import Site
from torchreel.atlas.site.file_costs import costs_of_file
from torchreel.atlas.site.format import count_text, time_text, writable
from torchreel.atlas.site.frame import framed, trail_to
from torchreel.atlas.site.outline import Entry, landmarks, outline
from torchreel.atlas.site.parts import (
    command,
    cost_heads,
    empty_text,
    facts_list,
    legend,
    links,
    listed,
    section,
    table,
)
from torchreel.atlas.site.performance import costs_something, total_backward
from torchreel.atlas.site.prose import inline, prose
from torchreel.atlas.site.sections import (
    COMMANDS,
    EMPTY,
    HEADINGS,
    STATES,
    by_kind,
    counts_text,
    id_of,
    language_text,
    looked_for_text,
    performance_text,
)
from torchreel.atlas.site.source_lines import line_count, line_link, source_lines

_BAR = 64  # pixels
_MANY = 1_000_000  # calls need a wider column
_IDS = {heading: id_of(heading) for heading in HEADINGS}
_CONTENTS = "".join(f'<li><a href="#{anchor}">{heading}</a></li>\n' for heading, anchor in _IDS.items())


def file_page(facts: FileFacts, site: Site, entries: list[Entry] | None = None) -> str:
    """The whole page. `facts.body` is HTML already; all else is text. `entries` are its outline, if that is made."""
    name = facts.path.rpartition("/")[2]
    entries = outline(facts) if entries is None else entries
    last = line_count(facts.body)
    split = facts.costs is not None and total_backward(facts.costs) is not None
    gutter = any(map(costs_something, facts.line_costs.values()))
    bodies = {
        "About": _about(facts, last),
        "Structure": _structure(facts, entries, last, split),
        "Imports": _imports(facts, last),
        "Imported by": links(facts.imported_by, EMPTY["Imported by"]),
        "Registers": _registers(facts, last),
        "Performance": _performance(facts, last, split),
        "Calls worth a look": _looks(facts, site, last),
        "Tests": links(facts.tests, EMPTY["Tests"]),
        "Related": links(facts.related, EMPTY["Related"]),
        "Keywords": _keywords(facts, last),
    }
    sections = "\n".join([section(heading, _IDS[heading], body) for heading, body in bodies.items()])
    kinds = legend("split" if split else "whole") if gutter else ""
    begun = f'<section>\n<h2 id="{_IDS["Source"]}">Source</h2>\n{kinds if last else empty_text(EMPTY["Source"])}'
    above = writable(f"{_head(facts, name)}\n{sections}\n{begun}")
    body = f"{above}{_source(facts, last, gutter, split)}</section>\n"
    folder = facts.path.rpartition("/")[0]
    title = f"{name} · {facts.root}/{folder}" if folder else f"{name} · {facts.root}"
    return framed(site, facts.page, title, body, trail_to(facts.page, facts.root, facts.path), _contents(entries))


def _contents(entries: list[Entry]) -> str:
    """What stands beside the page: its sections, and what the file defines."""
    rows = []
    for entry in landmarks(entries):
        symbol = entry.symbol
        name, href = escape(symbol.name), escape(paths.fragment(writable(entry.anchor)))
        rows.append(
            f'<li class="d{entry.depth}"><a href="{href}" data-line="{symbol.line}" '
            f'title="{escape(symbol.kind)} {name}">{name}</a></li>\n'
        )
    symbols = f'<ul class="symbols">\n{"".join(rows)}</ul>\n' if rows else ""
    return f"<ul>\n{_CONTENTS}</ul>\n{symbols}"


def _head(facts: FileFacts, name: str) -> str:
    rows = [
        ("Path", f"<code>{escape(facts.path)}</code>"),
        ("Language", escape(language_text(facts.language))),
        ("Lines", f"{facts.lines:,}"),
        ("Bytes", f"{facts.bytes:,}"),
    ]
    if facts.commit:
        rows.append(("Commit", f"<code>{escape(facts.commit)}</code>"))
    if facts.state == "same":
        rows.append(("Source", STATES["same"]))
    twin = paths.href(facts.page, paths.twin(facts.root, facts.path))
    rows.append(("SHA-256", f"<code>{escape(facts.sha256)}</code>"))
    rows.append(("As Markdown", f'<a href="{escape(twin)}">{escape(name)}.md</a>'))
    note = f'<p class="note">{STATES[facts.state]}</p>\n' if facts.state in ("changed", "unknown") else ""
    return f'<header class="head">\n<h1>{escape(name)}</h1>\n{facts_list(rows)}{note}</header>\n'


def _about(facts: FileFacts, last: int) -> str:
    doc = (
        f'<blockquote class="prose">\n{prose(facts.doc)}</blockquote>\n'
        if facts.doc.strip()
        else empty_text(EMPTY["About"])
    )
    unread = ""
    if facts.errors:
        lines = ", ".join([line_link(number, last) for number in facts.errors])
        unread = (
            f'<p class="counts">{count_text(len(facts.errors), "place")} not understood: '
            f"{'line' if len(facts.errors) == 1 else 'lines'} {lines}.</p>\n"
        )
    return f'{doc}<p class="counts">{escape(counts_text(facts))}</p>\n{unread}'


def _structure(facts: FileFacts, entries: list[Entry], last: int, split: bool) -> str:
    """The table of symbols. A file can have thousands."""
    if not entries:
        return empty_text(EMPTY["Structure"])
    costed = facts.costs is not None
    scale = scale_of((entry.costs for entry in entries), below=True)
    rows = []
    for entry in entries:
        doc = f"<p>{inline(entry.sentence)}</p>" if entry.sentence else ""
        rows.append(
            f'<td class="n">{line_link(entry.symbol.line, last)}</td><td class="kind">{escape(entry.symbol.kind)}</td>'
            f'<td class="d{entry.depth}"><code>{_signature(entry)}</code>{doc}</td>'
            f"{_costs(entry, scale, split) if costed else ''}"
        )
    heads = '<th class="n">line</th><th>kind</th><th>symbol</th>'
    if not costed:
        return table(heads, rows, "structure")
    return table(heads + cost_heads("total" if split else ""), rows, "structure costed")


def _signature(entry: Entry) -> str:
    """The signature with its name as a link to the source; the name alone, where that is not in the signature."""
    symbol = entry.symbol
    link = f'<a href="{escape(paths.fragment(writable(entry.anchor)))}">{escape(symbol.name)}</a>'
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


def _imports(facts: FileFacts, last: int) -> str:
    if not facts.imports:
        return empty_text(EMPTY["Imports"])
    rows = []
    for to in facts.imports:
        text = f'<a href="{escape(to.href)}">{escape(to.text)}</a>' if to.href else escape(to.text)
        note = f"line {line_link(int(to.note), last)}" if to.note.isdecimal() else escape(to.note)
        rows.append(f"{text} <small>{note}</small>" if note else text)
    return listed(rows)


def _registers(facts: FileFacts, last: int) -> str:
    if not facts.registrations:
        return empty_text(EMPTY["Registers"])
    rows = []
    for row, href in zip(facts.registrations, facts.registration_links, strict=True):
        name = f'<a href="{escape(href)}">{escape(row.name)}</a>' if href else escape(row.name)
        rows.append(
            f'<td class="n">{line_link(row.line, last)}</td><td><code>{name}</code></td><td>{escape(row.key)}</td>'
            f"<td><code>{escape(row.what)}</code></td>"
        )
    return table('<th class="n">line</th><th>name</th><th>dispatch key</th><th>by</th>', rows)


def _performance(facts: FileFacts, last: int, split: bool) -> str:
    if facts.costs is None:
        return f"<p>{performance_text(facts)}</p>\n{command(COMMANDS)}"
    return costs_of_file(facts, facts.costs, last, split)


def _looks(facts: FileFacts, site: Site, last: int) -> str:
    looked_for = escape(looked_for_text(facts, site))
    if not facts.looks:
        return f'<p class="empty">None were found. {looked_for}</p>\n'
    rows = [
        f"<code>{escape(look.what)}</code> <small>line {line_link(look.line, last)}</small>" for look in facts.looks
    ]
    return f'{listed(rows)}<p class="counts">{looked_for}</p>\n'


def _keywords(facts: FileFacts, last: int) -> str:
    kinds = []
    for kind, rows in by_kind(facts.keywords):
        words = []
        for row in rows:
            href = f' href="#L{row.line}"' if 0 < row.line <= last else ""
            count = f"<small>{row.count}</small>" if row.count > 1 else ""
            words.append(f"<a{href}>{escape(row.keyword)}{count}</a> ")
        kinds.append(f"<div><dt>{escape(kind)}</dt><dd>{''.join(words)}</dd></div>\n")
    return f'<dl class="keywords">\n{"".join(kinds)}</dl>\n' if kinds else empty_text(EMPTY["Keywords"])


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
