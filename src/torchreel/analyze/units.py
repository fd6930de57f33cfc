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


def bytes_text(size: int) -> str:
    """A number of bytes, as the command line writes it: 512 B, 1.50 KiB, -2.00 MiB."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if abs(size) >= 1 << power:
            return f"{size / (1 << power):.2f} {unit}"
    return f"{size} B"


def count_text(count: int, noun: str) -> str:
    """A number with its noun, as the command line writes it: 1 process, 2 processes, 1,234 ops."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith('s') else 's'}"


def _three_digits(value: float) -> str:
    """Three digits at most, without zeros behind the point."""
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
