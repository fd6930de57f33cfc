"""What a run cost in a file, as a section of its page: its costliest lines and functions, the ops of each line."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from torchreel.atlas.model import Costs, FileFacts
from torchreel.atlas.site.bars import bar, scale_of
from torchreel.atlas.site.format import bytes_text, count_text, flops_text, time_text
from torchreel.atlas.site.parts import cards, cost_cells, cost_heads, legend, table
from torchreel.atlas.site.performance import MOST, Spent, costliest_functions, costliest_lines, live_lines
from torchreel.atlas.site.sections import performance_text, touched
from torchreel.atlas.site.source_lines import line_link

_FEW = 30  # rows of a table that is open from the beginning
_WIDTH = 640  # pixels of the bar of the file
_ALL = "all that cost something"


def costs_of_file(facts: FileFacts, costs: Costs, last: int, split: bool) -> str:
    """The section's body. `last` is the last line of the page; `split`: the backward part of the total is known."""
    said, is_touched = performance_text(facts), touched(facts)
    parts = [f'<p class="{"says" if is_touched else "empty"}">{said}</p>\n'] if said else []
    if not is_touched:
        return "".join(parts)
    parts.append(cards(costs))
    parts.append(f'<p class="split">{bar(costs, scale_of([costs], True), _WIDTH, True)}</p>\n')
    parts.append(legend("split" if split else "whole"))
    part = "total" if split else "self"
    parts.append(_costliest("lines", "source", costliest_lines(facts), "beside the source", part, last))
    parts.append(_costliest("functions", "function", costliest_functions(facts), "in the structure", part, last))
    parts += [_live(facts, last), _kernels(facts, last), _ops(facts, last)]
    return "".join(parts)


def _costliest(what: str, head: str, rows: Sequence[Spent], others: str, part: str, last: int) -> str:
    if not rows:
        return ""
    shown = rows[:MOST]
    told = f"{len(shown)} of {len(rows):,}; the others stand {others}" if len(rows) > len(shown) else _ALL
    scale = scale_of((row.costs for row in shown), True)
    cells = [_spent(row, last) + cost_cells(row.costs, scale, part, below=True) for row in shown]
    heads = f'<th class="n line">line</th><th class="wide">{head}</th>{cost_heads(part)}'
    return f"<h3>Costliest {what} <small>{told}</small></h3>\n{table(heads, cells, 'fixed')}"


def _spent(row: Spent, last: int) -> str:
    return f'<td class="n">{line_link(row.line, last)}</td><td class="cut"><code>{escape(row.text)}</code></td>'


def _live(facts: FileFacts, last: int) -> str:
    rows = live_lines(facts)
    if not rows:
        return ""
    shown = rows[:MOST]
    all_of_them = "all lines whose blocks lived then"
    told = f"{len(shown)} of {len(rows):,} lines" if len(rows) > len(shown) else all_of_them
    cells = [
        f'<td class="n">{line_link(row.line, last)}</td><td class="cut"><code>{escape(row.text)}</code></td>'
        f'<td class="n">{bytes_text(row.bytes, 1)}</td>'
        for row in shown
    ]
    heads = '<th class="n line">line</th><th class="wide">source</th><th class="n more">bytes</th>'
    return f"<h3>Live at the peak of memory <small>{told}</small></h3>\n{table(heads, cells, 'fixed')}"


def _kernels(facts: FileFacts, last: int) -> str:
    rows, before = [], -1
    for row in facts.line_kernels:
        line = line_link(row.line, last) if row.line != before else ""
        before = row.line
        rows.append(
            f'<td class="n">{line}</td><td><code>{escape(row.kernel)}</code></td><td>{escape(row.device)}</td>'
            f'<td class="n">{time_text(row.dur_ns)}</td><td class="n">{row.calls:,}</td>'
        )
    heads = (
        '<th class="n">line</th><th>kernel</th><th>device</th><th class="n">time on the device</th>'
        '<th class="n">calls</th>'
    )
    told = "what each line launched, and how long it took on the device"
    return _folded("Device kernels by line", told, heads, rows)


def _ops(facts: FileFacts, last: int) -> str:
    rows, before = [], -1
    for row in facts.line_ops:
        line = line_link(row.line, last) if row.line != before else ""
        before = row.line
        name = f'<a href="{escape(row.href)}">{escape(row.op)}</a>' if row.href else escape(row.op)
        overload = f'<span class="soft">.{escape(row.overload)}</span>' if row.overload else ""
        tag = '<span class="tag b">backward</span>' if row.backward else ""
        zero = "" if row.alloc_bytes else " zero"
        rows.append(
            f'<td class="n">{line}</td><td><code>{name}{overload}</code></td><td>{tag}</td>'
            f'<td class="n">{time_text(row.self_ns)}</td><td class="n">{row.calls:,}</td>'
            f'<td class="n{zero}">{bytes_text(row.alloc_bytes, 1)}</td><td class="n">{flops_text(row.flops)}</td>'
        )
    heads = (
        '<th class="n">line</th><th>op</th><th></th><th class="n">self</th><th class="n">calls</th>'
        '<th class="n">allocated</th><th class="n">FLOPs</th>'
    )
    return _folded("Ops by line", "what each op cost on each line", heads, rows)


def _folded(heading: str, told: str, heads: str, rows: Sequence[str]) -> str:
    """A table under its heading that is open if it is short."""
    if not rows:
        return ""
    is_open = " open" if len(rows) <= _FEW else ""
    return (
        f"<h3>{heading}</h3>\n<details{is_open}><summary>{count_text(len(rows), 'row')}: {told}</summary>\n"
        f"{table(heads, rows)}</details>\n"
    )
