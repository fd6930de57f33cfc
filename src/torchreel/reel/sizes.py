"""Sizes as people write them."""

from __future__ import annotations

import re

from torchreel.errors import OptionError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_MOST_DIGITS = 20


def parse_size(text: str | int) -> int:
    """Bytes of "64MB", "1GiB", "500000" or a number."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*", str(text).lower())
    if match is None or len(match[1]) > _MOST_DIGITS:
        raise OptionError(f"{text!r} is not a size: write it like 64MB, 1GiB or 500000.")
    return int(float(match[1]) * _UNITS[match[2] or ""])
