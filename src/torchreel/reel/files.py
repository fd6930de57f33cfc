"""One Parquet file of a reel -> a table, or a sentence that says how the file is damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from torchreel.errors import CorruptReelError, NotAReelError, ReelError, TruncatedReelError, first_line
from torchreel.reel.tables import TableDefinition
from torchreel.reel.write import conform

_MAGIC = b"PAR1"
_ADVICE = "restore it from a copy, or leave its process out (--skip-damaged, or torchreel.load(..., skip_damaged=True))"


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open one file, of which the end is read; its rows are not."""
    try:
        return pq.ParquetFile(_source(path), page_checksum_verification=True)
    except Exception as error:  # whatever it is, the bytes of this one file caused it
        raise damaged(path, error) from None


def read_table(path: Path, definition: TableDefinition, wanted: Sequence[str]) -> pa.Table:
    """Some columns of a file as the definition has them; those that it has not are null."""
    with open_parquet(path) as parquet:
        try:
            schema = parquet.schema_arrow
            _check_types(path, definition, schema)
            present = set(schema.names)
            table = parquet.read(columns=[name for name in wanted if name in present])
            if table.schema != _part(definition, wanted):
                table = conform(definition, table).select(wanted)
            table.validate(full=True)
        except CorruptReelError:
            raise
        except Exception as error:
            raise damaged(path, error) from None
    return table


def read_row_groups(path: Path, definition: TableDefinition, wanted: Sequence[str]) -> Iterator[pa.Table]:
    """The same, a row group at a time."""
    with open_parquet(path) as parquet:
        try:
            schema = parquet.schema_arrow
            _check_types(path, definition, schema)
            present = [name for name in wanted if name in schema.names]
            for group in range(parquet.num_row_groups):
                table = conform(definition, parquet.read_row_group(group, columns=present)).select(wanted)
                table.validate(full=True)
                yield table
        except CorruptReelError:
            raise
        except Exception as error:
            raise damaged(path, error) from None


def is_unicode(path: Path) -> bool:
    """Whether a path can be given to libraries that want UTF-8."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _source(path: Path) -> str | BinaryIO:
    return str(path) if is_unicode(path) else path.open("rb")


def _part(definition: TableDefinition, wanted: Sequence[str]) -> pa.Schema:
    schema = definition.schema
    return pa.schema([schema.field(name) for name in wanted])


def _check_types(path: Path, definition: TableDefinition, schema: pa.Schema) -> None:
    for column in definition.columns:
        if schema.get_field_index(column.name) < 0:
            continue
        kind = schema.field(column.name).type
        if _family(kind) not in (_family(column.type), "null"):
            raise CorruptReelError(
                f"{path} has {kind} in the column {column.name}, where a reel has {column.type}: {_ADVICE}."
            )


def _family(kind: pa.DataType) -> str:
    """Types of one family differ in their width or encoding only."""
    if pa.types.is_dictionary(kind):
        return _family(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list of {_family(kind.value_type)}"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    return str(kind)


def damaged(path: Path, error: Exception) -> ReelError:
    """What is wrong with a file that cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(_MAGIC)))
            tail = file.read()
    except FileNotFoundError:
        return NotAReelError(f"{path} is gone since the reel was opened: restore it from a copy.")
    except IsADirectoryError:
        return CorruptReelError(f"{path} is a directory, where a reel has a file: {_ADVICE}.")
    except OSError as refused:
        return CorruptReelError(f"{path} cannot be read ({refused.strerror or refused}): {_ADVICE}.")
    if size == 0:
        return TruncatedReelError(f"{path} is empty: {_ADVICE}.")
    if head == _MAGIC and tail != _MAGIC:
        return TruncatedReelError(f"{path} ends after {size} bytes, before it is complete: {_ADVICE}.")
    return CorruptReelError(f"{path} is damaged ({first_line(error)}): {_ADVICE}.")
