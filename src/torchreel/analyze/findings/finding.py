"""A finding: something in a run that costs time or memory, what it would save at most, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Evidence:
    """A row that proves a finding: what it is, its numbers in words, and where the viewer shows it."""

    name: str
    text: str
    screen: str  # ops, timeline, memory, modules, source
    query: str = ""  # what to search for there


@dataclass(frozen=True)
class Finding:
    """What a rule found."""

    rule: str
    title: str
    sentence: str
    """What costs, in one sentence with its numbers."""
    cure: str
    """The change to make."""
    saves_ns: int
    """What would be saved of a step at most, or of the run if there are no steps."""
    percent: float
    """The same as a part of the step's wall time."""
    evidence: tuple[Evidence, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
