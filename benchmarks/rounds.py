"""Variants of one measurement, interleaved: each window of one is paired with the bare windows just before and after.

A shared machine is fast in one second and slow in the next. What two neighbours differ by survives that; what one
variant took in the first minute and another in the third does not. So a round is not one long run of each variant but
several short windows, far apart, and its value is the median of what they differ from their neighbours by.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.result import Spread, number

Variant = TypeVar("Variant")


@dataclass(frozen=True)
class Pair:
    """What a variant took, and what the bare program took beside it."""

    bare: float
    added: float

    @property
    def slowdown(self) -> float:
        return self.added / self.bare

    @classmethod
    def of_round(cls, windows: Sequence[Pair], besides: float) -> Pair:
        return cls(
            statistics.median(window.bare for window in windows),
            statistics.median(window.added for window in windows) + besides,
        )


def interleave(
    window: Callable[[Variant], float],
    bare: Variant,
    groups: Sequence[Sequence[Variant]],
    besides: Callable[[Variant], float],
    *,
    rounds: int,
    windows: int,
) -> dict[Variant, list[Pair]]:
    """One pair per variant and round. The order changes all the time; variants of one group stay neighbours.

    `besides` is what a variant costs besides that which its windows show, and is taken once in a round.
    """
    order = random.Random(0)
    pairs: dict[Variant, list[Pair]] = {variant: [] for group in groups for variant in group}
    for _ in range(rounds):
        taken: dict[Variant, list[Pair]] = {variant: [] for variant in pairs}
        for _ in range(windows):
            before = window(bare)
            for group in order.sample(groups, len(groups)):
                for variant in order.sample(group, len(group)):
                    value = window(variant)
                    after = window(bare)
                    beside = (before + after) / 2
                    taken[variant].append(Pair(beside, value - beside))
                    before = after
        for variant, several in taken.items():
            pairs[variant].append(Pair.of_round(several, besides(variant)))
    return pairs


def added(pairs: Sequence[Pair]) -> Spread:
    return Spread.of([pair.added for pair in pairs])


def slowdown(pairs: Sequence[Pair]) -> Spread:
    return Spread.of([pair.slowdown for pair in pairs])


def ratio(ours: Sequence[Pair], theirs: Sequence[Pair]) -> Spread:
    """Round by round, what one variant added against what the other did."""
    return Spread.of([mine.added / other.added for mine, other in zip(ours, theirs, strict=True)])


def in_words(spread: Spread, unit: str, scale: float = 1) -> str:
    low, high = number(spread.low * scale), number(spread.high * scale)
    return f"{number(spread.median * scale)} {unit} [{low} to {high}]"
