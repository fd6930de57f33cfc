"""Tables -> the Parquet files of one process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from torchreel.reel.tables import TABLES, TEXT, TableDefinition

# Columns that grow or waver by little from row to row: a third of the bytes of plain encoding.
_DELTA = {
    "id",
    "parent",
    "start_ns",
    "end_ns",
    "time_ns",
    "dur_ns",
    "self_ns",
    "seq",
    "fwd",
    "op",
    "addr",
    "address",
    "total",
}


def _encodings(definition: TableDefinition) -> tuple[dict[str, str], list[str]]:
    delta = {c.name: "DELTA_BINARY_PACKED" for c in definition.columns if c.name in _DELTA}
    dictionary = [c.name for c in definition.columns if c.name not in delta and not pa.types.is_boolean(c.type)]
    return delta, [("frames.list.element" if name == "frames" else name) for name in dictionary]


def conform(definition: TableDefinition, table: pa.Table | pa.RecordBatch) -> pa.Table:
    """The table with exactly the definition's columns, in its order and types; missing ones are null."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    arrays = []
    for column in definition.columns:
        index = table.schema.get_field_index(column.name)
        if index < 0:
            arrays.append(pa.chunked_array([pa.nulls(table.num_rows, column.type)]))
            continue
        values = table.column(index)
        if values.type != column.type:
            values = values.dictionary_encode() if column.type == TEXT else values.cast(column.type)
        arrays.append(values)
    return pa.Table.from_arrays(arrays, schema=definition.schema)


class ProcessWriter:
    """Writes one process's tables, batch after batch; a table without rows has no file.

    Files appear under their names only at the end: until then they are `*.parquet.part`.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writers: dict[str, pq.ParquetWriter] = {}
        directory.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, table: pa.Table | pa.RecordBatch) -> None:
        if table.num_rows == 0:
            return
        definition = TABLES[name]
        writer = self._writers.get(name)
        if writer is None:
            delta, dictionary = _encodings(definition)
            writer = self._writers[name] = pq.ParquetWriter(
                self._directory / f"{name}.parquet.part",
                definition.schema,
                compression="zstd",
                compression_level=3,
                use_dictionary=dictionary,
                column_encoding=delta,
                write_statistics=["start_ns", "time_ns", "step"],
                data_page_version="2.0",
            )
        writer.write_table(conform(definition, table))

    def __enter__(self) -> ProcessWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, writer in self._writers.items():
            writer.close()
            part = self._directory / f"{name}.parquet.part"
            if error is None:
                part.replace(self._directory / f"{name}.parquet")
            else:
                part.unlink()


def write_process(directory: Path, tables: Mapping[str, pa.Table] | Iterable[tuple[str, pa.Table]]) -> None:
    """Write all the tables of one process at once."""
    items = tables.items() if isinstance(tables, Mapping) else tables
    with ProcessWriter(directory) as writer:
        for name, table in items:
            writer.write(name, table)
