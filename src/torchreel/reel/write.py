"""Tables -> the Parquet files of one process."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from torchreel.reel.tables import TABLES, TEXT, TableDefinition

# Rows that are compressed together: more take more memory, fewer more bytes.
_ROW_GROUP = 500_000

# Columns that grow or waver by little from row to row: a third of the bytes of plain encoding.
_DELTA = {
    "id",
    "parent",
    "start_ns",
    "end_ns",
    "time_ns",
    "seq",
    "fwd",
    "op",
    "launch",
    "correlation",
    "record_id",
    "alloc",
    "addr",
    "address",
    "total",
}


def _encodings(definition: TableDefinition) -> tuple[dict[str, str], list[str]]:
    delta = {c.name: "DELTA_BINARY_PACKED" for c in definition.columns if c.name in _DELTA}
    dictionary = [c for c in definition.columns if c.name not in delta and not pa.types.is_boolean(c.type)]
    return delta, [f"{c.name}.list.element" if pa.types.is_list(c.type) else c.name for c in dictionary]


@functools.lru_cache(maxsize=16)
def _nulls(rows: int, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(rows, kind)])


def conform(definition: TableDefinition, table: pa.Table | pa.RecordBatch) -> pa.Table:
    """The table with exactly the definition's columns, in its order and types; missing ones are null."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    arrays = []
    for column in definition.columns:
        index = table.schema.get_field_index(column.name)
        if index < 0:
            arrays.append(_nulls(table.num_rows, column.type))
            continue
        values = table.column(index)
        if values.type != column.type:
            values = values.dictionary_encode() if column.type == TEXT else values.cast(column.type)
        arrays.append(values)
    return pa.Table.from_arrays(arrays, schema=definition.schema)


class ProcessWriter:
    """Writes one process's tables, batch after batch; a table without rows has no file.

    Files appear under their names only at the end, when all of them are on disk: until then they are
    `*.parquet.part`, which go if anything fails.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._files: dict[str, IO[bytes]] = {}
        self._waiting: dict[str, list[pa.Table]] = {}
        directory.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, table: pa.Table | pa.RecordBatch) -> None:
        if table.num_rows == 0:
            return
        waiting = self._waiting.setdefault(name, [])
        waiting.append(conform(TABLES[name], table))
        if sum(part.num_rows for part in waiting) >= _ROW_GROUP:
            self._write_group(name)

    def _write_group(self, name: str) -> None:
        definition = TABLES[name]
        table = pa.concat_tables(self._waiting.pop(name)).unify_dictionaries()
        writer = self._writers.get(name)
        if writer is None:
            delta, dictionary = _encodings(definition)
            file = self._files[name] = self._part(name).open("wb")
            writer = self._writers[name] = pq.ParquetWriter(
                file,
                definition.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=dictionary,
                # Durations have few distinct values for their number: as a dictionary they take a third less.
                dictionary_pagesize_limit=8 << 20,
                column_encoding=delta,
                write_statistics=["start_ns", "time_ns", "step"],
                data_page_version="2.0",
                write_page_checksum=True,
            )
        writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def __enter__(self) -> ProcessWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._discard()
            return
        try:
            self._finish()
        except BaseException:
            self._discard()
            raise

    def _part(self, name: str) -> Path:
        return self._directory / f"{name}.parquet.part"

    def _finish(self) -> None:
        for name in list(self._waiting):
            self._write_group(name)
        for name, writer in self._writers.items():
            writer.close()
            self._files[name].flush()
            os.fsync(self._files[name].fileno())
            self._files[name].close()
        for name in self._writers:
            self._part(name).replace(self._directory / f"{name}.parquet")
        _sync(self._directory)

    def _discard(self) -> None:
        for name, file in self._files.items():
            with contextlib.suppress(OSError, pa.ArrowException):  # it is already failing for a reason
                self._writers[name].close()
            with contextlib.suppress(OSError):
                file.close()
            self._part(name).unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    """Bring the names in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_process(directory: Path, tables: Mapping[str, pa.Table] | Iterable[tuple[str, pa.Table]]) -> None:
    """Write all the tables of one process at once."""
    items = tables.items() if isinstance(tables, Mapping) else tables
    with ProcessWriter(directory) as writer:
        for name, table in items:
            writer.write(name, table)
