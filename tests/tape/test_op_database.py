"""Every call in torch's own database of ops, traced and replayed bit by bit: a sample here, all of them with `long`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tape.op_database import SOME_DTYPES, Way, calm, check, database, pytest_generate_tests, samples, title, ways  # noqa: F401

_EVERY = 40  # op, of the sample
_SHARDS = 2


def failures(op: Any, chosen: Iterator[Way] | list[Way], most: int | None, folder: Path) -> list[str]:
    found = []
    for way in chosen:
        for place, sample in enumerate(samples(op, way, most)):
            unlike = check(op, way, sample, folder)
            if unlike:
                found.append(f"{title(op)}, {way}, sample {place}: {unlike}")
    return found


@pytest.mark.parametrize("shard", [0, *(pytest.param(shard, marks=pytest.mark.long) for shard in range(1, _SHARDS))])
def test_ops_of_a_sample_replay_bit_by_bit(shard: int, tmp_path: Path) -> None:
    found = []
    for op in database()[::_EVERY][shard::_SHARDS]:
        found += failures(op, ways(op, SOME_DTYPES[:1]), 2, tmp_path)
    assert found == []


@pytest.mark.long
def test_op_replays_bit_by_bit(op: Any, tmp_path: Path) -> None:
    assert failures(op, ways(op), None, tmp_path) == []
