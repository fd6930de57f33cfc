"""Which call made which: against walks from call to call."""

from __future__ import annotations

import numpy as np
import pytest

from torchreel.analyze.source.call_tree import inherited, rows_of, within_own_group


def test_rows_of_ids() -> None:
    ids = np.array([30, 10, 20])
    assert rows_of(ids, np.array([10, 20, 30, 15, -1, 99])).tolist() == [1, 2, 0, -1, -1, -1]
    assert rows_of(np.array([], np.int64), np.array([1])).tolist() == [-1]


@pytest.mark.parametrize("seed", range(10))
def test_against_a_walk(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = 200
    above = np.array([int(random.integers(-1, row)) if row else -1 for row in range(count)])
    given = np.where(random.random(count) < 0.1, random.integers(0, 5, count), -1)
    group = random.integers(-1, 4, count)

    def around(row: int) -> list[int]:
        rows = []
        while (row := int(above[row])) >= 0:
            rows.append(row)
        return rows

    nearest = [next((int(given[at]) for at in (row, *around(row)) if given[at] >= 0), -1) for row in range(count)]
    assert inherited(above, given).tolist() == nearest
    below = [group[row] >= 0 and any(group[at] == group[row] for at in around(row)) for row in range(count)]
    assert within_own_group(above, group).tolist() == below


def test_calls_that_made_each_other_end_the_walk() -> None:
    above = np.array([1, 0, 2, 1])
    assert inherited(above, np.array([-1, -1, -1, -1])).tolist() == [-1] * 4
    assert inherited(above, np.array([5, -1, -1, -1])).tolist() == [5, 5, -1, 5]
    assert within_own_group(above, np.array([1, 1, 1, 1])).tolist() == [False, True, False, True]
