"""Numbers in sentences."""

from __future__ import annotations


def time_text(ns: int) -> str:
    """A duration as a person says it: 12 us, 3.4 ms, 5.62 s."""
    for unit, power in (("s", 9), ("ms", 6), ("us", 3)):
        if abs(ns) >= 10**power:
            return f"{_three_digits(ns / 10**power)} {unit}"
    return f"{ns} ns"


def percent_text(percent: float) -> str:
    """12.3 %, 3.4 %."""
    return f"{_three_digits(percent)} %"


def _three_digits(value: float) -> str:
    """Three digits at most, without zeros behind the point."""
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
