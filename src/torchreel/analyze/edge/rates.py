"""Numbers of one run, from those of several."""

from __future__ import annotations

import statistics
from collections.abc import Iterable


def rate(flops: int | None, ns: int) -> float | None:
    """FLOPs per second."""
    return None if flops is None or ns <= 0 else flops * 1e9 / ns


def median_ns(values: Iterable[int], runs: int) -> int:
    """The median over all runs; those without a value took no time."""
    known = list(values)
    return round(statistics.median([*known, *[0] * (runs - len(known))]))
