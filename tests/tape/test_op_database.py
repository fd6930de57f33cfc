"""Every call in torch's own database of ops, traced and replayed bit by bit: a sample here, all of them with `long`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tape.op_database import SOME_DTYPES, Way, check, database, samples, title, ways

_EVERY = 12  # op, of the sample
_SHARDS = 4


@pytest.fixture(autouse=True)
def _calm(recwarn: pytest.WarningsRecorder) -> None:
    """What torch says about experimental ops is not ours."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "op" not in metafunc.fixturenames:
        return
    # Importing the database takes seconds: not where its tests are left out.
    wanted = metafunc.config.option.markexpr != "not long"
    ops = database() if wanted else []
    metafunc.parametrize("op", ops, ids=[title(op) for op in ops])


def failures(op: Any, chosen: Iterator[Way] | list[Way], most: int | None, folder: Path) -> list[str]:
    found = []
    for way in chosen:
        for place, sample in enumerate(samples(op, way, most)):
            unlike = check(op, way, sample, folder)
            if unlike:
                found.append(f"{title(op)}, {way}, sample {place}: {unlike}")
    return found


@pytest.mark.parametrize("shard", range(_SHARDS))
def test_ops_of_a_sample_replay_bit_by_bit(shard: int, tmp_path: Path) -> None:
    found = []
    for op in database()[::_EVERY][shard::_SHARDS]:
        found += failures(op, ways(op, SOME_DTYPES[:1]), 2, tmp_path)
    assert found == []


@pytest.mark.long
def test_op_replays_bit_by_bit(op: Any, tmp_path: Path) -> None:
    assert failures(op, ways(op), None, tmp_path) == []
