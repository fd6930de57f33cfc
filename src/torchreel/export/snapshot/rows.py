"""The tables of one process as Python values, for a snapshot. Equal texts are the same object: pickles stay small."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from torchreel.errors import CorruptReelError
from torchreel.reel import Reel


class ProcessTables:
    """What one process of a reel holds."""

    def __init__(self, reel: Reel, process: int) -> None:
        self.reel = reel
        self.index = process

    def table(self, name: str, columns: list[str]) -> pa.Table:
        """Some columns of a table of this process."""
        own = [part for part in self.reel.parts if part.index == self.index]
        return self.reel.rows_of(name, own, columns).select(columns)

    def rows(self, name: str, columns: list[str]) -> Iterator[tuple[Any, ...]]:
        """The rows of a table of this process, as tuples."""
        table = self.table(name, columns)
        return zip(*(values(column) for column in table.columns), strict=True)


def values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column."""
    if not pa.types.is_dictionary(column.type):
        plain: list[Any] = column.to_pylist()
        return plain
    result: list[Any] = []
    for chunk in column.unify_dictionaries().chunks:
        texts = [*chunk.dictionary.to_pylist(), None]
        result += [texts[index] for index in chunk.indices.fill_null(len(texts) - 1).to_pylist()]
    return result


def json_value(text: str | None, what: str, reel: Reel) -> Any:
    """A value that the reel holds as JSON."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        raise CorruptReelError(
            f"{reel.path} holds {what} in a form that is not JSON: restore it from a copy."
        ) from None
