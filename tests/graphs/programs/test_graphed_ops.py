"""PyTorch's database of ops through graphs, bit by bit as eager: a sample here, all of them with `long`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.graphs.programs.graphed_ops import DIFFERENTIABLE, Tally, check, ways
from tests.tape.op_database import SOME_DTYPES, calm, database, pytest_generate_tests, title  # noqa: F401

_EVERY = 34  # op, of the sample
_SHARDS = 2
REPLAYED = [(60, 62), (45, 58)]  # of so many samples: what torch 2.13 has, and graphs replay


@pytest.mark.parametrize("shard", [0, *(pytest.param(shard, marks=pytest.mark.long) for shard in range(1, _SHARDS))])
def test_ops_of_a_sample_are_replayed_bit_by_bit(shard: int) -> None:
    tally = Tally()
    for op in database()[::_EVERY][shard::_SHARDS]:
        for way in ways(op, (torch.float32,)):
            check(op, way, 2, tally)
    assert tally.unlike == []
    assert (tally.replayed, tally.samples) == REPLAYED[shard]


@pytest.mark.long
def test_op_is_replayed_bit_by_bit(op: Any) -> None:
    tally = Tally()
    for way in ways(op, (*DIFFERENTIABLE, *SOME_DTYPES[1:])):
        check(op, way, None, tally)
    assert tally.unlike == []
