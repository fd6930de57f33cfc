"""What a run cost in a file: its costliest lines and functions, and the ops of each line."""

from __future__ import annotations

from typing import NamedTuple

from torchreel.atlas.model import Costs, FileFacts
from torchreel.atlas.site.outline import full_name

MOST = 10


class Spent(NamedTuple):
    """A line or a function of the file, and what it cost."""

    line: int
    text: str
    costs: Costs


class Held(NamedTuple):
    """A line of the file, and the bytes of it that lived at the peak."""

    line: int
    text: str
    bytes: int


def costliest_lines(facts: FileFacts) -> list[Spent]:
    """All lines that cost something, costliest first: by the time below them, then by their own."""
    lines = facts.text.split("\n")
    found = [
        Spent(line, lines[line - 1].strip() if 0 < line <= len(lines) else "", costs)
        for line, costs in facts.line_costs.items()
        if costs_something(costs)
    ]
    return sorted(found, key=_order)


def costliest_functions(facts: FileFacts) -> list[Spent]:
    """All functions that cost something, costliest first."""
    found = [
        Spent(symbol.line, full_name(symbol, facts.language), costs)
        for index, symbol in enumerate(facts.symbols)
        if symbol.kind in ("function", "method")
        and (costs := facts.symbol_costs.get(index)) is not None
        and costs_something(costs)
    ]
    return sorted(found, key=_order)


def live_lines(facts: FileFacts) -> list[Held]:
    """All lines whose blocks lived at the peak, the most bytes first."""
    lines = facts.text.split("\n")
    found = [
        Held(line, lines[line - 1].strip() if 0 < line <= len(lines) else "", size)
        for line, size in facts.line_peaks.items()
    ]
    return sorted(found, key=lambda held: (-held.bytes, held.line))


def total_backward(costs: Costs) -> int | None:
    """The backward part of the total: None where it is not known, and 0 of a total of 0."""
    return costs.total_backward_ns if costs.total_ns else 0


def costs_something(costs: Costs) -> bool:
    """Whether there is a number to show."""
    return bool(costs.calls or costs.self_ns or costs.total_ns or costs.alloc_bytes)


def _order(spent: Spent) -> tuple[int, int, int]:
    return (-spent.costs.total_ns, -spent.costs.self_ns, spent.line)
