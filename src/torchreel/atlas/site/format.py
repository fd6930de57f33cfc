"""Numbers and names as a person reads them, on pages and in Markdown."""

from __future__ import annotations

import re

from torchreel._units import bytes_text, count_text
from torchreel.atlas.markup import shown

__all__ = ["bytes_text", "count_text", "flops_text", "percent_text", "shortened", "time_text", "writable"]

_LONGEST = 240  # characters of a sentence in a table
_HALF = re.compile("[\ud800-\udfff]")


def time_text(ns: int) -> str:
    """A duration with three digits: 875 ns, 12.3 µs, 1.63 s."""
    if not ns:
        return "0"
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000)):
        if abs(ns) >= size * 0.9995:
            return f"{_three_digits(ns / size)} {unit}"
    return f"{ns} ns"


def flops_text(flops: int | None) -> str:
    """A number of floating point operations: 512, 1.50 M, 2.40 T; nothing where no formula is known."""
    if flops is None:
        return ""
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("K", 10**3)):
        if flops >= size * 0.9995:
            return f"{_three_digits(flops / size)} {unit}"
    return str(flops)


def percent_text(part: int, whole: int) -> str:
    """A share: 12 %, 3.4 %; below a tenth of a percent it says so."""
    if not part or not whole:
        return "0 %"
    share = 100 * part / whole
    if share < 0.1:
        return "< 0.1 %"
    return f"{share:.0f} %" if share >= 9.95 else f"{share:.1f} %"


def shortened(text: str) -> str:
    """The text, or what fits into 240 characters of it, cut at a word."""
    if len(text) <= _LONGEST:
        return text
    return (text[:_LONGEST].rpartition(" ")[0] or text[:_LONGEST]) + " …"


def writable(text: str) -> str:
    """The text with pictures for control characters, and with U+FFFD for halves of characters, which UTF-8 has not."""
    text = shown(text)
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"
