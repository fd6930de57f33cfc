"""Numbers and names as text."""

from __future__ import annotations

import pytest

from torchreel.atlas.site.format import flops_text, percent_text, shortened, time_text, writable


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (12_345, "12.3 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (875_000_000, "875 ms"),
        (1_628_000_000, "1.63 s"),
        (123_456_000_000, "123 s"),
    ],
)
def test_time_text(ns: int, text: str) -> None:
    assert time_text(ns) == text


@pytest.mark.parametrize(
    ("flops", "text"), [(None, ""), (0, "0"), (512, "512"), (1_500_000, "1.50 M"), (24 * 10**11, "2.40 T")]
)
def test_flops_text(flops: int | None, text: str) -> None:
    assert flops_text(flops) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 9, "0 %"), (1, 0, "0 %"), (1, 10_000, "< 0.1 %"), (34, 1000, "3.4 %"), (1, 2, "50 %"), (9, 9, "100 %")],
)
def test_percent_text(part: int, whole: int, text: str) -> None:
    assert percent_text(part, whole) == text


def test_shortened() -> None:
    assert shortened("short") == "short"
    assert shortened("word " * 60) == "word " * 47 + "word …"
    assert shortened("x" * 300) == "x" * 240 + " …"


def test_writable() -> None:
    assert writable("a\tb\n\0\x1b\udc80ü") == "a\tb\n␀␛\ufffdü"
