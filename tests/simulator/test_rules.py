"""Rounding and versions, where Python computes what the native model computes too."""

from __future__ import annotations

import pytest
from benchmarks.plain_allocator import PlainAllocator
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator import native_run
from torchreel.errors import OptionError
from torchreel.simulator.conf import Conf
from torchreel.simulator.rules import limit_of, native_rules, order_of, round_size, version_of

MIB = 1 << 20


@given(
    size=st.integers(1, 1 << 36),
    divisions=st.lists(st.sampled_from([0, 1, 2, 4, 8, 16, 1 << 30, 1 << 62]), min_size=16, max_size=16),
)
def test_sizes_are_rounded_alike_everywhere(size: int, divisions: list[int]) -> None:
    conf = Conf(roundup_power2_divisions=tuple(divisions))
    rules = native_rules(conf, 2)
    rounded = round_size(conf, size)
    assert rounded == PlainAllocator(rules).round(size)
    result = native_run.run({**rules, "expandable": True}, {}, [("alloc", 0, size, 0, 0)])
    assert native_run.state(result)[0][1] == rounded


def test_sizes_that_pytorch_documents() -> None:
    """The example of its manual: 1200 between 1024 and 2048 in four divisions."""
    conf = Conf(roundup_power2_divisions=(4,) * 16)
    assert round_size(conf, 1200) == 1536  # below 512 * 4 the rounding to 512 rules
    assert round_size(conf, 1200 * 1024) == 1280 * 1024
    assert round_size(conf, MIB) == MIB
    assert round_size(Conf(), 1) == 512


def test_orders_of_versions() -> None:
    assert [order_of(version_of(text)) for text in ("1.13", "2.11.0+cu126", "2.12", "2.13.0", "3.0")] == [0, 0, 1, 2, 2]
    with pytest.raises(OptionError, match="'two' is not a version of torch"):
        version_of("two")


def test_a_limit_needs_a_device_and_a_fraction() -> None:
    assert limit_of(1000, 0.5) == 500
    assert limit_of(None, 0.5) is None
    assert limit_of(1000, 1.0) is None
    assert limit_of(1000, None) is None
