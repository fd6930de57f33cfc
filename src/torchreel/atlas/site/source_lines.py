"""The source of a file as lines with ids, numbers and costs: the larger part of all pages, so it is joined plainly.

Lines stand in blocks of 200: a browser lays out the blocks in view and leaves the others until they come.
"""

from __future__ import annotations

from collections import defaultdict
from html import escape

from torchreel.atlas.model import Costs, FileFacts, LineKernel, LineOp
from torchreel.atlas.site.bars import bar, scale_of
from torchreel.atlas.site.format import bytes_text, count_text, flops_text, time_text, writable

_BLOCK = 200
_BAR = 44  # pixels
_MOST_OPS = 6


def source_lines(facts: FileFacts) -> str:
    """The lines, without what stands around them; each has the id of its number and those of its symbols."""
    lines = facts.body.split("\n")
    if not lines[-1]:
        lines.pop()
    for line, anchors in _anchors(facts, len(lines)).items():
        lines[line - 1] = anchors + lines[line - 1]
    for line, gutter in _gutters(facts, len(lines)).items():
        lines[line - 1] = gutter + lines[line - 1]
    rows = [f'<div id="L{at}"><a href="#L{at}">{at}</a>{line}</div>' for at, line in enumerate(lines, 1)]
    blocks = ["\n".join(rows[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK)]
    return '<div class="block">\n' + '\n</div>\n<div class="block">\n'.join(blocks) + "\n</div>\n"


def line_count(text: str) -> int:
    """The lines of a text; a newline at the end begins none."""
    return text.count("\n") + (text != "" and not text.endswith("\n"))


def line_link(line: int, last: int) -> str:
    """The number of a line, as a link if the page has that line: a file may have changed since it was recorded."""
    return f'<a href="#L{line}">{line}</a>' if 0 < line <= last else f"{line}"


def _anchors(facts: FileFacts, last: int) -> dict[int, str]:
    """The ids of the symbols of each line."""
    found: dict[int, str] = defaultdict(str)
    for symbol, anchor in zip(facts.symbols, facts.anchors, strict=True):
        found[min(max(symbol.line, 1), last)] += f'<a id="{escape(writable(anchor))}"></a>'
    return found


def _gutters(facts: FileFacts, last: int) -> dict[int, str]:
    """What stands between the numbers of lines and their code: bar, self, total, the backward part of it, calls."""
    scale = scale_of(facts.line_costs.values(), below=True)
    ops: dict[int, list[LineOp]] = defaultdict(list)
    for op in facts.line_ops:
        ops[op.line].append(op)
    kernels: dict[int, list[LineKernel]] = defaultdict(list)
    for kernel in facts.line_kernels:
        kernels[kernel.line].append(kernel)
    return {
        line: _gutter(costs, scale, _told(costs, ops[line], kernels[line], facts.line_peaks.get(line, 0)))
        for line, costs in facts.line_costs.items()
        if 0 < line <= last and (costs.calls or costs.self_ns or costs.total_ns)
    }


def _gutter(costs: Costs, scale: int, told: str) -> str:
    calls = f"{costs.calls:,}" if costs.calls else ""
    times = (costs.self_ns, costs.total_ns, costs.total_backward_ns)
    numbers = "".join([f"<i>{time_text(ns) if ns else ''}</i>" for ns in times]) + f"<i>{calls}</i>"
    return f'<span title="{escape(told)}">{bar(costs, scale, _BAR, below=True)}{numbers}</span>'


def _told(costs: Costs, ops: list[LineOp], kernels: list[LineKernel], live: int) -> str:
    """The whole cost of a line in words, with its costliest ops."""
    parts = [f"self: {_split(costs.self_ns, costs.backward_ns)}"]
    if costs.total_backward_ns is not None:
        parts.append(f"total: {_split(costs.total_ns, costs.total_backward_ns)}")
    if costs.alloc_bytes:
        parts.append(f"allocated {bytes_text(costs.alloc_bytes)}")
    if live:
        parts.append(f"live at the peak: {bytes_text(live)}")
    if kernels:
        took, launched = sum(one.dur_ns for one in kernels), sum(one.calls for one in kernels)
        parts.append(f"on devices: {time_text(took)}, {count_text(launched, 'kernel')}")
    if costs.flops:
        parts.append(f"{flops_text(costs.flops)} FLOPs")
    for op in sorted(ops, key=lambda op: -op.self_ns)[:_MOST_OPS]:
        name = f"{writable(op.op)} (backward)" if op.backward else writable(op.op)
        parts.append(f"{name}: {time_text(op.self_ns)}, {count_text(op.calls, 'call')}")
    return "\n".join(parts)


def _split(ns: int, backward: int) -> str:
    return f"forward {time_text(ns - backward)}, backward {time_text(backward)}"
