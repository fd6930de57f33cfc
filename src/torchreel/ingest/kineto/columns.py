"""Columns that grow chunk by chunk, and texts as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from torchreel.ingest.rows import whole

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

NOTHING = -(2**63)  # in place of null: no time, id or size is this number


class Codes(dict[Any, int]):
    """Numbers that are given out to values as they come."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number

    def of(self, values: Iterable[Any]) -> Ints:
        """The number of each value; NOTHING for None."""
        return np.array([NOTHING if value is None else self[value] for value in values], np.int64)

    def texts(self) -> pa.Array:
        """The values, which are texts, by their numbers."""
        return pa.array([plain(text) for text in self], pa.string())


class Growing:
    """Columns of one table. A column that a part does not have is NOTHING there."""

    def __init__(self, *names: str) -> None:
        self._parts: dict[str, list[Ints]] = {name: [] for name in names}
        self.rows = 0

    def add(self, rows: int, **columns: Any) -> None:
        for name, parts in self._parts.items():
            given = columns.pop(name, None)
            parts.append(np.full(rows, NOTHING if given is None else given) if np.ndim(given) == 0 else given)
        assert not columns, f"columns {', '.join(columns)} are unknown"
        self.rows += rows

    def put(self, columns: dict[str, Ints]) -> None:
        """Columns that were taken, changed."""
        self._parts = {name: [values] for name, values in columns.items()}
        self.rows = len(next(iter(columns.values())))

    def taken(self) -> dict[str, Ints]:
        """The whole columns, once; the parts are given free one after the other."""
        names = list(self._parts)
        return {name: joined(self._parts.pop(name)) for name in names}


def joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def column(values: Ints, kind: pa.DataType | None = None) -> pa.Array:
    """An Arrow column, null for NOTHING and for what does not fit into its type."""
    missing = values == NOTHING
    if kind is not None and pa.types.is_int32(kind):
        missing |= (values < -(2**31)) | (values >= 2**31)
    array = pa.array(np.where(missing, 0, values), pa.int64(), mask=missing)
    return array if kind is None else array.cast(kind)


def text_column(codes: Ints, texts: pa.Array) -> pa.DictionaryArray:
    """A column of text of its numbers, null for NOTHING."""
    missing = codes < 0
    indices = pa.array(np.where(missing, 0, codes).astype(np.int32), mask=missing)
    return pa.DictionaryArray.from_arrays(indices, texts)


def plain(text: str) -> str:
    """A text as a reel holds it: valid UTF-8 without NUL."""
    text = whole(text)
    return text.replace("\0", "\\x00") if "\0" in text else text


def rows_of(keys: Ints, wanted: Ints) -> Ints:
    """For each wanted key the first row that has it; -1 where none does, and for NOTHING."""
    present = np.flatnonzero(keys != NOTHING)
    order = present[np.argsort(keys[present], kind="stable")]
    found = np.full(len(wanted), -1, np.int64)
    if not len(order):
        return found
    ordered = keys[order]
    places = np.minimum(np.searchsorted(ordered, wanted), len(order) - 1)
    hit = (ordered[places] == wanted) & (wanted != NOTHING)
    found[hit] = order[places[hit]]
    return found
