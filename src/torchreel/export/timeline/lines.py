"""Lines of text made in Arrow: columns of parts are joined row by row, without a Python object per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Offsets of 64 bits: the lines of one batch may exceed 2 GiB when stacks are long.
TEXT = pa.large_string()

_EMPTY = pa.scalar("", TEXT)
_THOUSANDTHS = pa.array([f".{number:03}" for number in range(1000)], TEXT)

Part: TypeAlias = pa.Array | str


def joined(parts: Sequence[Part], optional: bool = False) -> pa.Array:
    """One text per row; a null part is left out, or with `optional` makes the whole row null."""
    columns = [pa.scalar(part, TEXT) if isinstance(part, str) else part for part in parts]
    nulls = "emit_null" if optional else "replace"
    return pc.binary_join_element_wise(*columns, _EMPTY, null_handling=nulls, null_replacement="")


def bytes_of(lines: pa.Array) -> pa.Buffer:
    """All the lines as one piece of memory, which Arrow holds already: nothing is copied."""
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)
    first, last = int(ends[lines.offset]), int(ends[lines.offset + len(lines)])
    return data.slice(first, last - first)


def digits(numbers: pa.Array) -> pa.Array:
    """Integers as text."""
    return numbers.cast(TEXT)


def microseconds(nanoseconds: pa.Array) -> list[pa.Array]:
    """Nanoseconds as microseconds with three decimals, exact because no float is involved; none may be negative."""
    whole = pc.divide(nanoseconds, 1000)
    return [digits(whole), _THOUSANDTHS.take(pc.subtract(nanoseconds, pc.multiply(whole, 1000)))]
