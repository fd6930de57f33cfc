"""A measured number, how far it spreads, and the goal that it is held against."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Spread:
    """The median of several measurements and the quartiles around it."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))


@dataclass(frozen=True)
class Goal:
    limit: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Result:
    """One line of a table. Without a goal it is there to be known; what was not measured says why."""

    what: str
    measured: Spread | None
    goal: Goal | None = None
    unit: str = ""
    detail: str = ""

    @property
    def verdict(self) -> str:
        if self.goal is None or self.measured is None:
            return ""
        return "met" if self.goal.met(self.measured.median) else "missed"

    def cells(self) -> list[str]:
        """What, goal, measured, spread, verdict, detail: as texts."""
        goal = ""
        if self.goal is not None:
            goal = f"{'at least' if self.goal.at_least else 'at most'} {number(self.goal.limit, self.unit)}"
        measured = self.measured
        if measured is None:
            return [self.what, goal, "not measured", "", self.verdict, self.detail]
        spread = f"{number(measured.low)} to {number(measured.high)}, n = {measured.count}"
        if measured.count == 1:
            spread = "n = 1"
        return [self.what, goal, number(measured.median, self.unit), spread, self.verdict, self.detail]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Result:
        goal, measured = values["goal"], values["measured"]
        spread = Spread(**measured) if measured else None
        return cls(**{**values, "measured": spread, "goal": Goal(**goal) if goal else None})


HEADERS = ["what", "goal", "measured", "quartiles", "verdict", "detail"]


def number(value: float, unit: str = "") -> str:
    """Three digits that count."""
    if value != 0 and abs(value) < 100:
        decimals = 2 if abs(value) < 10 else 1
        if abs(value) < 0.1:
            decimals = 4
        text = f"{value:.{decimals}f}"
    else:
        text = f"{value:,.0f}"
    return f"{text} {unit}".rstrip()


def table(results: Sequence[Result]) -> list[list[str]]:
    """The cells of a table with its headers, without columns that are empty throughout."""
    rows = [HEADERS, *(result.cells() for result in results)]
    used = [index for index in range(len(HEADERS)) if any(row[index] for row in rows[1:])]
    return [[row[index] for index in used] for row in rows]


def as_text(results: Sequence[Result]) -> str:
    rows = table(results)
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def as_markdown(results: Sequence[Result]) -> str:
    head, *rows = table(results)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
