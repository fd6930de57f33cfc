"""Times of another clock -> times of the CPU's.

Nothing is known of the other clock but that it ticks in nanoseconds, and that what it measured happened within a span
of the CPU's clock: a call of the model. Each span allows a range of offsets between the clocks; the offset that all of
them allow is the right one to within a few microseconds. Where there is none, because a clock drifts or jumps, each
span takes the nearest that it allows itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Span = tuple[int, int]


def offsets(spans: Sequence[Span], measured: Sequence[Span]) -> list[int]:
    """What to add to the times of each measured span, so that it lies in its span, or at least begins with it."""
    ranges = [_allowed(span, inner) for span, inner in zip(spans, measured, strict=True)]
    if not ranges:
        return []
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    common = (low + high) // 2 if low <= high else _usual(ranges)
    return [min(max(common, low), high) for low, high in ranges]


def _allowed(span: Span, measured: Span) -> Span:
    """The least and the greatest offset with which it lies within; what is too long begins where its span begins."""
    least = span[0] - measured[0]
    return least, max(least, span[1] - measured[1])


def _usual(ranges: list[Span]) -> int:
    """The offset that most of the ranges allow."""
    changes = sorted([(low, 0) for low, _ in ranges] + [(high, 1) for _, high in ranges])
    depth, most, best = 0, 0, ranges[0][0]
    for (at, ends), (after, _) in pairwise(changes):
        depth += -1 if ends else 1
        if depth > most:
            most, best = depth, (at + after) // 2
    return best


def inside(outer: Span, inner: Span) -> Span:
    """The inner span, cut to what lies in the outer one."""
    start = min(max(inner[0], outer[0]), outer[1])
    return start, max(start, min(inner[1], outer[1]))
