"""The Markdown twin of a file's page, and `llms.txt`, the list of all twins: the same facts for readers of plain text.

Text from sources is escaped or stands in code, so that none of it becomes markup wherever a twin is rendered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from torchreel.atlas.model import Costs, FileFacts, Link
from torchreel.atlas.site.facts import Site, SummaryRow
from torchreel.atlas.site.format import bytes_text, count_text, flops_text, time_text, writable
from torchreel.atlas.site.outline import Entry, outline
from torchreel.atlas.site.performance import (
    MOST,
    Spent,
    costliest_functions,
    costliest_lines,
    live_lines,
    total_backward,
)
from torchreel.atlas.site.sections import (
    COMMANDS,
    EMPTY,
    STATES,
    by_kind,
    counts_text,
    language_text,
    looked_for_text,
    performance_text,
    touched,
)

_ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]|~#"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_IN_URL = str.maketrans({"(": "%28", ")": "%29", " ": "%20", "<": "%3C", ">": "%3E", "|": "%7C", "\n": "%0A"})
_TICKS = re.compile("`+")
_TAGS = {"c++": "cpp", "cuda": "cuda", "rst": "rst"}
_COSTS = ("Self", "Backward of self", "Total", "Backward of total", "Calls", "Allocated", "FLOPs")
_NUMERIC = frozenset((*_COSTS, "Line", "Live at the peak", "Time on the device"))


def markdown_twin(facts: FileFacts, site: Site, entries: list[Entry] | None = None) -> str:
    """The whole twin: the sections of the page under the same headings. `entries` are its outline, if that is made."""
    bodies = {
        "About": _about(facts),
        "Structure": _structure(facts, outline(facts) if entries is None else entries),
        "Imports": _links(facts, facts.imports, "line "),
        "Imported by": _links(facts, facts.imported_by),
        "Registers": _registers(facts),
        "Performance": _performance(facts),
        "Calls worth a look": _looks(facts, site),
        "Tests": _links(facts, facts.tests),
        "Related": _links(facts, facts.related),
        "Keywords": _keywords(facts),
    }
    parts = [f"# {_text(facts.root)}/{_text(facts.path)}\n\n{_head(facts)}"]
    for heading, section in bodies.items():
        parts.append(f"\n## {heading}\n\n{section.rstrip() or EMPTY[heading]}\n")
    source = fenced(facts.text, _TAGS.get(facts.language, facts.language)) if facts.text else f"{EMPTY['Source']}\n"
    return f"{writable(''.join(parts))}\n## Source\n\n{source}"


def llms_text(site: Site, rows: Iterable[SummaryRow]) -> str:
    """`llms.txt`: a line per file with the link to its twin, its first sentence and its cost."""
    lines = []
    recorded = False
    for row in rows:
        recorded |= row.costs is not None
        told = [part for part in (_text(row.doc), _cost_sentence(row.costs)) if part]
        lines.append(f"- [{_text(row.link.text)}]({_url(row.link.href)}){': ' if told else ''}{' '.join(told)}\n")
    about = f"what the file defines and imports,{' what a recorded run cost in it,' if recorded else ''} and its source"
    head = f"{count_text(len(lines), 'source file')}. Each link leads to a page in Markdown: {about}."
    return writable(f"# {_text(site.title)}\n\n> {head}\n\n## Files\n\n{''.join(lines)}")


def fenced(text: str, tag: str) -> str:
    """The text in a fence that is longer than any run of backquotes in it."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{tag}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}\n"


def _head(facts: FileFacts) -> str:
    rows = [
        ("Language", language_text(facts.language)),
        ("Lines", f"{facts.lines:,}"),
        ("Bytes", f"{facts.bytes:,}"),
        ("SHA-256", _code(facts.sha256)),
    ]
    if facts.commit:
        rows.append(("Commit", _code(facts.commit)))
    if facts.state:
        rows.append(("Source", STATES[facts.state]))
    return _table(("Fact", "Value"), rows)


def _about(facts: FileFacts) -> str:
    about = fenced(facts.doc.strip("\n"), "text") if facts.doc.strip() else f"{EMPTY['About']}\n"
    errors = f"{'line' if len(facts.errors) == 1 else 'lines'} {', '.join(map(str, facts.errors))}"
    unread = f"\n\n{count_text(len(facts.errors), 'place')} not understood: {errors}." if facts.errors else ""
    return f"{about}\n{counts_text(facts)}{unread}"


def _structure(facts: FileFacts, entries: list[Entry]) -> str:
    costed = facts.costs is not None
    rows = []
    for entry in entries:
        symbol = entry.symbol
        doc = _text(entry.sentence) if entry.sentence else ""
        row = [str(symbol.line), _text(symbol.kind), _code(symbol.signature or symbol.name), doc]
        rows.append(row + _cost_cells(entry.costs) if costed else row)
    heads = ("Line", "Kind", "Symbol", "First sentence", *(_COSTS if costed else ()))
    return _table(heads, rows) if rows else ""


def _registers(facts: FileFacts) -> str:
    rows = []
    for row, href in zip(facts.registrations, facts.registration_links, strict=True):
        name = f"[{_code(row.name)}]({_url(href)})" if href else _code(row.name)
        rows.append((str(row.line), name, _text(row.key), _code(row.what)))
    return _table(("Line", "Name", "Dispatch key", "By"), rows) if rows else ""


def _performance(facts: FileFacts) -> str:
    said = performance_text(facts)
    if facts.costs is None:
        return f"{said}\n\n{fenced(chr(10).join(COMMANDS), 'sh')}"
    if not touched(facts):
        return said
    parts = [said] if said else []
    parts.append(_table(_COSTS, [_cost_cells(facts.costs)]))
    lines, functions = costliest_lines(facts), costliest_functions(facts)
    if lines:
        parts.append(f"### Costliest lines\n\n{_spent('Source', lines)}")
    if functions:
        parts.append(f"### Costliest functions\n\n{_spent('Function', functions)}")
    live = live_lines(facts)
    if live:
        rows = [(str(row.line), _code(row.text), bytes_text(row.bytes)) for row in live[:MOST]]
        parts.append(f"### Live at the peak of memory\n\n{_table(('Line', 'Source', 'Live at the peak'), rows)}")
    if facts.line_kernels:
        parts.append(f"### Device kernels by line\n\n{_line_kernels(facts)}")
    if facts.line_ops:
        parts.append(f"### Ops by line\n\n{_line_ops(facts)}")
    return "\n".join(f"{part.rstrip()}\n" for part in parts).rstrip()


def _spent(head: str, rows: Sequence[Spent]) -> str:
    cells = [(str(row.line), _code(row.text), *_cost_cells(row.costs)) for row in rows[:MOST]]
    return _table(("Line", head, *_COSTS), cells)


def _line_kernels(facts: FileFacts) -> str:
    rows = [
        (str(row.line), _code(row.kernel), _text(row.device), time_text(row.dur_ns), f"{row.calls:,}")
        for row in facts.line_kernels
    ]
    return _table(("Line", "Kernel", "Device", "Time on the device", "Calls"), rows)


def _line_ops(facts: FileFacts) -> str:
    rows = [
        (
            str(row.line),
            _code(f"{row.op}.{row.overload}" if row.overload else row.op),
            "backward" if row.backward else "forward",
            time_text(row.self_ns),
            f"{row.calls:,}",
            bytes_text(row.alloc_bytes),
            flops_text(row.flops),
        )
        for row in facts.line_ops
    ]
    return _table(("Line", "Op", "Pass", "Self", "Calls", "Allocated", "FLOPs"), rows)


def _looks(facts: FileFacts, site: Site) -> str:
    looked_for = _text(looked_for_text(facts, site))
    if not facts.looks:
        return f"None were found. {looked_for}"
    found = "".join(f"- {_code(look.what)} (line {look.line})\n" for look in facts.looks)
    return f"{found}\n{looked_for}"


def _keywords(facts: FileFacts) -> str:
    lines = []
    for kind, rows in by_kind(facts.keywords):
        lines.append(f"- {_text(kind)}: {', '.join([f'{_code(row.keyword)} ({row.line})' for row in rows])}")
    return "\n".join(lines)


def _links(facts: FileFacts, links: Sequence[Link], before: str = "") -> str:
    return "\n".join(f"- {_link(facts, link, before)}" for link in links)


def _link(facts: FileFacts, link: Link, before: str) -> str:
    text = f"[{_text(link.text)}]({_url(_from_twin(facts.page, link.href))})" if link.href else _text(link.text)
    return f"{text} ({before}{_text(link.note)})" if link.note else text


def _from_twin(page: str, href: str) -> str:
    """The same link from the twin. That lies as deep below `md/` as the page below `files/`: a link that stays there
    leads to the other twin, which has no ids, and one that leaves needs no change."""
    target = href.partition("#")[0]
    if not target or target.startswith("../" * page.count("/")):
        return href
    return f"{target.removesuffix('.html')}.md"


def _cost_cells(costs: Costs | None) -> list[str]:
    if costs is None:
        return [""] * len(_COSTS)
    part = total_backward(costs)
    times = (costs.self_ns, costs.backward_ns, costs.total_ns, part)
    texts = ["" if ns is None else time_text(ns) for ns in times]
    return [*texts, f"{costs.calls:,}", bytes_text(costs.alloc_bytes), flops_text(costs.flops)]


def _cost_sentence(costs: Costs | None) -> str:
    if costs is None:
        return ""
    total = _with_backward(costs.total_ns, costs.total_backward_ns)
    return f"Self {_with_backward(costs.self_ns, costs.backward_ns)}, total {total}."


def _with_backward(ns: int, backward: int | None) -> str:
    return f"{time_text(ns)} ({time_text(backward)} of it backward)" if backward else time_text(ns)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = "|".join("---:" if head in _NUMERIC else "---" for head in heads)
    return f"| {' | '.join(heads)} |\n|{rule}|\n" + "".join([f"| {' | '.join(row)} |\n" for row in rows])


def _text(text: str) -> str:
    """A text on one line that is no markup."""
    if text.isalnum():
        return text
    return " ".join(text.translate(_ESCAPES).split())


def _code(text: str) -> str:
    """A text on one line as code, fit for a table."""
    if text.isidentifier():
        return f"`{text}`"
    text = " ".join(text.split()).replace("|", "\\|")
    if "`" not in text:
        return f"`{text}`" if text else ""
    ticks = "`" * (max(map(len, _TICKS.findall(text))) + 1)
    return f"{ticks} {text} {ticks}"


def _url(href: str) -> str:
    return href.translate(_IN_URL)
