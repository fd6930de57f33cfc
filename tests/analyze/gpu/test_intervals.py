"""Sets of intervals against sets of nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest

from torchreel.analyze.gpu.intervals import (
    Intervals,
    contains,
    covered,
    covered_until,
    difference,
    gaps,
    intersection,
    joined,
    union,
)

FAR = 1_700_000_000_000_000_000  # a time that a double cannot hold to the nanosecond


def some(random: np.random.Generator) -> tuple[Intervals, set[int]]:
    start = FAR + random.integers(0, 120, int(random.integers(0, 9)))
    end = start + random.integers(-2, 25, len(start))
    return union(start, end), {t for a, b in zip(start.tolist(), end.tolist(), strict=True) for t in range(a, b)}


def times(intervals: Intervals) -> set[int]:
    """What is in the set; on the way, that it has the form which it promises."""
    start, end = intervals.start.tolist(), intervals.end.tolist()
    limits = [limit for pair in zip(start, end, strict=True) for limit in pair]
    assert limits == sorted(set(limits)), "sorted, without empty or touching intervals"
    return {t for a, b in zip(start, end, strict=True) for t in range(a, b)}


@pytest.mark.parametrize("seed", range(4))
def test_they_are_sets_of_nanoseconds(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(60):
        (one, in_one), (other, in_other) = some(random), some(random)
        assert times(one) == in_one
        assert one.length == len(in_one)
        assert times(joined(one, other)) == in_one | in_other
        assert times(intersection(one, other)) == in_one & in_other
        assert times(difference(one, other)) == in_one - in_other
        assert (
            times(gaps(one)) == {t for t in range(FAR, FAR + 200) if in_one and min(in_one) < t < max(in_one)} - in_one
        )
        assert times(one.within(FAR + 20, FAR + 60)) == in_one & set(range(FAR + 20, FAR + 60))
        at = FAR + random.integers(-5, 160, 20)
        assert contains(one, at).tolist() == [t in in_one for t in at.tolist()]
        assert covered_until(one, at).tolist() == [len([t for t in in_one if t < limit]) for limit in at.tolist()]
        until = at + random.integers(0, 30, 20)
        assert covered(one, at, until).tolist() == [
            len([t for t in in_one if a <= t < b]) for a, b in zip(at.tolist(), until.tolist(), strict=True)
        ]


def test_nothing_joined_is_nothing() -> None:
    assert joined().length == 0
