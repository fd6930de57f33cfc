"""Microseconds as decimal text -> nanoseconds, exactly: a double has steps of 250 ns where times are since 1970."""

from __future__ import annotations

import decimal
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from torchreel import _decode
from torchreel.ingest.kineto.columns import NOTHING, Ints

_DECIMAL = pa.decimal128(38, 3)
# Kineto writes -5 ns as 0.-05: whole microseconds, then the rest, each with its sign.
_TWO_SIGNS = re.compile(rb"(-?\d+)\.-(\d+)")
# Sums of two times must fit into 64 bits.
_MOST = 2**62


def nanoseconds(texts: list[Raw]) -> Ints:
    """The time of each text; NOTHING for a text that is no time, or is empty."""
    found = _decode.nanoseconds(texts)
    if found is not None:
        return found
    lengths = np.fromiter(map(len, texts), np.int32, len(texts))
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = b"".join(texts)
    strings = pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(data))
    empty = lengths == 0
    try:
        if empty.any():
            strings = pc.if_else(pa.array(~empty), strings, "0")
        decimals = strings.cast(_DECIMAL)
    except pa.ArrowException:
        return np.fromiter(map(_nanoseconds, texts), np.int64, len(texts))
    halves = np.frombuffer(decimals.buffers()[1], np.int64).reshape(-1, 2)[decimals.offset :]
    low, high = halves[: len(texts), 0], halves[: len(texts), 1]
    fits = (high == low >> 63) & (np.abs(low) < _MOST) & ~empty
    return np.where(fits, low, NOTHING)


def _nanoseconds(text: Raw) -> int:
    """The same for one text of any form."""
    value = bytes(text).strip(b'"')
    match = _TWO_SIGNS.fullmatch(value)
    try:
        if match:
            whole, rest = int(match[1][:20]), int(match[2][:20])
            number = decimal.Decimal(whole * 1000 - rest)
        else:
            number = (decimal.Decimal(value.decode("ascii")) * 1000).to_integral_value()
        if not number.is_finite() or abs(number) >= _MOST:
            return NOTHING
        return int(number)
    except (ArithmeticError, ValueError):
        return NOTHING
