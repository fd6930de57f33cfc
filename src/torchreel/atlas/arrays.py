"""Columns of Arrow from plain values, by way of their bytes.

`pa.array` looks for pandas as soon as it is given a list, and imports it where it is installed: that would take a
third of a second run of an atlas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from torchreel.atlas.texts import Texts


def joined_texts(parts: Sequence[Texts]) -> pa.Array:
    """The texts of all parts, as one column."""
    lengths = np.frombuffer(b"".join([part.lengths for part in parts]), np.int32)
    return _strings(lengths, b"".join([part.data for part in parts]), None)


def texts(values: Iterable[str | None]) -> pa.Array:
    """A column of texts, null where there is none."""
    listed = list(values)
    pieces = [(value or "").encode() for value in listed]
    lengths = np.fromiter(map(len, pieces), np.int32, len(pieces))
    known = np.fromiter((value is not None for value in listed), bool, len(listed))
    return _strings(lengths, b"".join(pieces), known)


def _strings(lengths: NDArray[np.int32], data: bytes, known: NDArray[np.bool_] | None) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        half = len(lengths) // 2
        parts = (slice(None, half), slice(half, None))
        cut = int(offsets[half])
        columns = [
            _strings(lengths[part], piece, known if known is None else known[part])
            for part, piece in zip(parts, (data[:cut], data[cut:]), strict=True)
        ]
        return pa.chunked_array(list(chain.from_iterable(_chunks(column) for column in columns)))
    buffers = [_bits(known), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(lengths), buffers)


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def numbers(values: NDArray[np.generic], known: NDArray[np.bool_] | None = None) -> pa.Array:
    """A column of numbers, null where they are not known."""
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [_bits(known), pa.py_buffer(np.ascontiguousarray(values))]
    )


def integers(values: Iterable[int | None], kind: pa.DataType) -> pa.Array:
    """A column of integers, null where there is none."""
    listed = list(values)
    found = np.fromiter((value or 0 for value in listed), kind.to_pandas_dtype(), len(listed))
    return numbers(found, np.fromiter((value is not None for value in listed), bool, len(listed)))


def booleans(values: NDArray[np.bool_]) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values, always=True)])


def _bits(values: NDArray[np.bool_] | None, always: bool = False) -> pa.Buffer | None:
    """A bit for each value; none, if all are set."""
    if values is None or (not always and bool(values.all())):
        return None
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table without rows."""
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)
