"""Microseconds as decimal text -> nanoseconds, exactly: a double has steps of 250 ns where times are since 1970."""

from __future__ import annotations

import decimal
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from torchreel.ingest.kineto.columns import NOTHING, Ints

_DECIMAL = pa.decimal128(38, 3)
# Kineto writes -5 ns as 0.-05: whole microseconds, then the rest, each with its sign.
_TWO_SIGNS = re.compile(rb"(-?\d+)\.-(\d+)")
_POINT = ord(".")
# So many digits of nanoseconds are below twice the limit: more than it is then seen.
_DIGITS = 19
# Sums of two times must fit into 64 bits.
_MOST = 2**62


def nanoseconds(texts: Sequence[Raw]) -> Ints:
    """The time of each text; NOTHING for a text that is no time, or is empty."""
    lengths = np.fromiter(map(len, texts), np.int32, len(texts))
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = b"".join(texts)
    found = _plain(np.frombuffer(data, np.uint8), lengths, offsets[:-1])
    if found is not None:
        return found
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


def _plain(data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int32], offsets: npt.NDArray[np.int32]) -> Ints | None:
    """The times, if those of one length have the form of 12345.678, or of 12345, all of them."""
    kinds = np.unique(lengths)
    if not len(kinds) or kinds[0] == 0:
        return None
    result = np.empty(len(lengths), np.int64)
    for length in kinds.tolist():
        rows = np.flatnonzero(lengths == length)
        first = data[offsets[rows[0]] : offsets[rows[0]] + length]
        points = np.flatnonzero(first == _POINT)
        decimals = length - 1 - int(points[0]) if len(points) else 0
        if decimals > 3 or len(points) > decimals or length - len(points) + 3 - decimals > _DIGITS:
            return None
        value = np.zeros(len(rows), np.int64)
        for place in range(length):
            character = data[offsets[rows] + place]
            if len(points) and place == points[0]:
                if (character != _POINT).any():
                    return None
                continue
            digit = character - np.uint8(48)  # what is no digit becomes more than 9
            if (digit > 9).any():
                return None
            value = value * 10 + digit
        result[rows] = value * 10 ** (3 - decimals)
    return None if ((result < 0) | (result >= _MOST)).any() else result


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
