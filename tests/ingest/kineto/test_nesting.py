"""Native nesting against what it means, call by call and nanosecond by nanosecond."""

from __future__ import annotations

import numpy as np
import pytest

from torchreel._decode import Nesting, nanoseconds
from torchreel.ingest.kineto.columns import NOTHING, Ints, Mask


class _Rows:
    """Random rows of some threads, sorted by start; calls overlap as they like, and some last no time."""

    def __init__(self, rng: np.random.Generator) -> None:
        count, span = int(rng.integers(0, 40)), int(rng.integers(2, 80))
        self.thread = rng.integers(0, 3, count)
        self.start = np.sort(rng.integers(0, span, count))
        self.moment: Mask = rng.random(count) < rng.choice([0, 0.3])
        self.end = np.where(self.moment, self.start, self.start + rng.integers(0, span, count))
        self.nesting = Nesting(self.thread, self.start, self.end, self.moment)

    def open_at(self, row: int) -> list[int]:
        """The calls of the thread that are open when the row begins, the innermost first."""
        before = range(row - 1, -1, -1)
        mine = [each for each in before if self.thread[each] == self.thread[row] and not self.moment[each]]
        return [each for each in mine if self.end[each] > self.start[row]]


@pytest.fixture(params=range(100))
def rows(request: pytest.FixtureRequest) -> _Rows:
    return _Rows(np.random.default_rng(request.param))


def test_a_parent_is_the_innermost_open_call_and_depth_counts_them(rows: _Rows) -> None:
    around = [rows.open_at(row) for row in range(len(rows.start))]
    assert rows.nesting.parent.tolist() == [each[0] if each else -1 for each in around]
    assert rows.nesting.depth.tolist() == [len(each) for each in around]


def test_of_chosen_calls_the_innermost_open_one_is_found(rows: _Rows) -> None:
    chosen: Mask = np.random.default_rng(len(rows.start)).random(len(rows.start)) < 0.3
    around = [[each for each in rows.open_at(row) if chosen[each]] for row in range(len(rows.start))]
    assert rows.nesting.around(chosen).tolist() == [each[0] if each else -1 for each in around]
    nearest = [row if chosen[row] else each[0] if each else -1 for row, each in enumerate(around)]
    assert rows.nesting.nearest(chosen).tolist() == nearest


def test_each_nanosecond_of_a_call_is_taken_from_the_innermost_call_that_is_still_open(rows: _Rows) -> None:
    times = (rows.end - rows.start).tolist()
    for row in range(len(rows.start)):
        around = rows.open_at(row)
        for moment in range(rows.start[row], rows.end[row]):
            still = [each for each in around if rows.end[each] > moment]
            if still:
                times[still[0]] -= 1
    assert rows.nesting.self_times().tolist() == times


def test_values_are_summed_over_all_open_calls(rows: _Rows) -> None:
    moments = np.flatnonzero(rows.moment)
    values: Ints = np.arange(len(moments)) * 7 - 20
    sums = [0] * len(rows.start)
    for row, value in zip(moments.tolist(), values.tolist(), strict=True):
        for each in rows.open_at(row):
            sums[each] += value
    assert rows.nesting.sums(moments, values).tolist() == sums


def test_deep_recursion_and_chains_of_overlaps_end() -> None:
    count = 20_000
    start = np.arange(count)
    thread, moment = np.zeros(count, np.int64), np.zeros(count, bool)
    deep = Nesting(thread, start, 2 * count - start, moment)
    assert deep.depth.tolist() == list(range(count))
    crossing = Nesting(thread, start, start + 10, moment)
    assert crossing.depth.tolist() == [min(row, 9) for row in range(count)]
    assert crossing.parent.tolist() == list(range(-1, count - 1))


def test_columns_that_do_not_fit_together_are_refused() -> None:
    three, two = np.zeros(3, np.int64), np.zeros(2, np.int64)
    mask = np.zeros(3, bool)
    with pytest.raises(ValueError, match="different lengths"):
        Nesting(three, three, two, mask)
    with pytest.raises(ValueError, match="below 0"):
        Nesting(three - 1, three, three, mask)
    nesting = Nesting(three, three, three, mask)
    with pytest.raises(ValueError, match="another length"):
        nesting.nearest(np.zeros(2, bool))
    with pytest.raises(ValueError, match="a value for each row"):
        nesting.sums(two, three)
    with pytest.raises(IndexError):
        nesting.sums(three + 3, three)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        (b"0", 0),
        (b"12", 12_000),
        (b"12.5", 12_500),
        (b"12.05", 12_050),
        (b"1715000000000000.123", 1_715_000_000_000_000_123),
        (b"4611686018427387.903", 2**62 - 1),
        (b"", NOTHING),
    ],
)
def test_plain_times_are_exact(text: bytes, time: int) -> None:
    found = nanoseconds([text])  # type: ignore[list-item]
    assert found is not None
    assert found.tolist() == [time]


@pytest.mark.parametrize(
    "text",
    [b"-1", b"1e3", b"1.", b".5", b"1.2345", b"0.-05", b'"12"', b" 1", b"1 ", b"4611686018427387.904", b"9" * 17],
)
def test_other_forms_are_left_to_others(text: bytes) -> None:
    assert nanoseconds([b"1", text]) is None  # type: ignore[list-item]
