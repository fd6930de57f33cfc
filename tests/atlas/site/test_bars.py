"""Bars."""

from __future__ import annotations

from torchreel.atlas.model import Costs
from torchreel.atlas.site.bars import bar, scale_of

COSTS = Costs(1, 30, 10, 20, 50)


def test_own_time_forward_and_backward() -> None:
    assert bar(COSTS, 60, 120) == (
        '<svg width="120" height="10" aria-hidden="true"><rect class="f" width="20.0" height="10"/>'
        '<rect class="b" x="20.0" width="40.0" height="10"/></svg>'
    )


def test_with_what_is_below() -> None:
    assert bar(COSTS, 50, 100, below=True) == (
        '<svg width="100" height="10" aria-hidden="true"><rect class="f" width="20.0" height="10"/>'
        '<rect class="b" x="20.0" width="40.0" height="10"/><rect class="t" x="60.0" width="40.0" height="10"/></svg>'
    )


def test_what_is_below_is_split_where_its_backward_is_known() -> None:
    assert bar(Costs(1, 30, 10, 20, 50, total_backward_ns=32), 50, 100, below=True) == (
        '<svg width="100" height="10" aria-hidden="true"><rect class="f" width="20.0" height="10"/>'
        '<rect class="b" x="20.0" width="40.0" height="10"/><rect class="tf" x="60.0" width="16.0" height="10"/>'
        '<rect class="tb" x="76.0" width="24.0" height="10"/></svg>'
    )


def test_what_is_too_short_to_be_seen_is_not_drawn() -> None:
    assert bar(COSTS, 10**9, 100) == ""
    assert bar(Costs(), 0, 100) == ""


def test_the_scale_is_the_longest_bar() -> None:
    assert scale_of([COSTS, None, Costs(1, 40, 40, 0, 40)]) == 40
    assert scale_of([COSTS, None, Costs(1, 40, 40, 0, 40)], below=True) == 50
    assert scale_of([]) == 0
