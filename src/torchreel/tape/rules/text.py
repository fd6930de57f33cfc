"""Rules as lines of text for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchreel.tape.rules.rule import KINDS, TAPES, TRACERS, WAYS, Rule

if TYPE_CHECKING:
    from torchreel.tape.rules.table import RuleTable

HEADERS = ("function", "kind", "torch.jit.trace", "under force_outplace", "on the tape", "by")
WIDEST = 44


def lines_of(table: RuleTable, most: int | None) -> Iterator[str]:
    """One line per rule, at most so many, and one of counts."""
    shown = table if most is None else table[:most]
    rows = [HEADERS, *(_cells(rule) for rule in shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADERS))]
    for number, row in enumerate(rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        if number == 0:
            yield "  ".join("-" * width for width in widths)
    if len(shown) < len(table):
        yield f"... and {len(table) - len(shown):,} more"
    yield ""
    yield summary(table)


def summary(table: RuleTable) -> str:
    """A line of counts for each thing that a rule says."""
    lines = [f"{len(table):,} functions"]
    for label, column, words in (
        ("kind", "kind", KINDS),
        ("torch.jit.trace", "tracer", TRACERS),
        ("on the tape", "tape", TAPES),
        ("by", "way", WAYS),
    ):
        counts = table.counts(column)
        parts = ", ".join(f"{counts[word]:,} {word}" for word in words if word in counts)
        if parts:
            lines.append(f"{label}: {parts}")
    return "\n".join(lines)


def _cells(rule: Rule) -> tuple[str, ...]:
    inplace = rule.node or rule.tracer
    outplace = rule.outplace_node if rule.outplace_node != rule.node else ""
    if rule.padded:
        outplace = f"{rule.outplace_node} + {len(rule.padded)} values"
    return tuple(
        cell if len(cell) <= WIDEST else cell[: WIDEST - 1] + "…"
        for cell in (rule.name, rule.kind, inplace, outplace, rule.tape, rule.way)
    )
