"""Columns of a reel as numpy arrays: what questions about memory compute with."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

NOTHING = -1  # in place of null, and of a row that there is not


def ints(table: pa.Table, name: str, missing: int = NOTHING) -> Ints:
    """A column of whole numbers; null becomes `missing`."""
    column = table.column(name)
    if column.null_count:
        column = column.fill_null(missing)
    values: Ints = column.to_numpy().astype(np.int64, copy=False)
    return values


def texts(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    """A column of texts as numbers, and the text of each number; null is NOTHING."""
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # of no rows
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes: Ints = column.indices.fill_null(NOTHING).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, [text or "" for text in column.dictionary.to_pylist()]


def translate(codes: Ints, words: list[str], meanings: dict[str, int], otherwise: int = NOTHING) -> Ints:
    """Numbers of words into numbers of meanings."""
    table = np.array([*(meanings.get(word, otherwise) for word in words), otherwise], np.int64)
    return table[codes]


def rows_of(ids: Ints, wanted: Ints) -> Ints:
    """For each wanted id its row in `ids`, which are sorted; NOTHING where there is none."""
    if not len(ids):
        return np.full(len(wanted), NOTHING, np.int64)
    rows = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[rows] == wanted, rows, NOTHING)
