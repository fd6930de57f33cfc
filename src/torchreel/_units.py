"""Bytes and counts as text, for all rooms."""

from __future__ import annotations


def bytes_text(size: int, digits: int = 2) -> str:
    """A number of bytes: 512 B, 1.50 KiB, -2.00 MiB."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if abs(size) >= 1 << power:
            return f"{size / (1 << power):.{digits}f} {unit}"
    return f"{size} B"


def count_text(count: int, noun: str) -> str:
    """A number with its noun: 1 process, 2 processes, 3 activities, 1,234 ops."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'ch')) else 's'}"
