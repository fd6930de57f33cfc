"""Numbers as texts."""

from __future__ import annotations

import pytest

from torchreel._units import bytes_text, count_text
from torchreel.cli.terminal.units import flops_unit, time_text


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0.000us"), (999_999, "999.999us"), (1_000_000, "1.000ms"), (10**9, "1.000s"), (-2_500_000, "-2.500ms")],
)
def test_time(ns: int, text: str) -> None:
    assert time_text(ns) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (-(1 << 21), "-2.00 MiB"), (1 << 30, "1.00 GiB")],
)
def test_bytes(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_count() -> None:
    assert [count_text(1, "process"), count_text(0, "process"), count_text(1234, "op")] == [
        *("1 process", "0 processes", "1,234 ops"),
    ]


@pytest.mark.parametrize(
    ("flops", "unit"),
    [(0, ("FLOPs", 1)), (1000, ("KFLOPs", 10**3)), (10**9, ("GFLOPs", 10**9)), (10**13, ("TFLOPs", 10**12))],
)
def test_flops(flops: int, unit: tuple[str, int]) -> None:
    assert flops_unit(flops) == unit
