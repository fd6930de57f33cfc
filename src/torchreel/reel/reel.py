"""A reel on disk, opened: its tables as pyarrow.Table, and SQL over them.

Opening reads meta.json and a directory listing; a table is read when it is first asked for.
Reading never writes. A process that is still recording, or that died before it could close its
part, has a `spool/` instead of Parquet files: it is decoded in memory, each time the reel is opened.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from torchreel.errors import CorruptReelError, NotAReelError, OptionError, TruncatedReelError
from torchreel.reel import spool
from torchreel.reel.meta import Meta, read_meta
from torchreel.reel.tables import TABLES, TableDefinition
from torchreel.reel.write import conform

if TYPE_CHECKING:
    import os


class Process:
    """One process's part of a reel."""

    def __init__(self, directory: Path, index: int) -> None:
        self.directory = directory
        self.index = index
        self.name = directory.name

    @property
    def spooled(self) -> bool:
        """Whether this part was never closed, and is read from what was streamed to disk."""
        return spool.exists(self.directory)

    def file(self, name: str) -> Path | None:
        """The Parquet file of a table, if it has one."""
        path = self.directory / f"{name}.parquet"
        return path if not self.spooled and path.exists() else None

    @functools.cached_property
    def _decoded(self) -> dict[str, pa.Table]:
        return spool.read(self.directory)

    def table(self, definition: TableDefinition, columns: list[str] | None = None) -> pa.Table:
        """The table without `process`; only the given columns, if any are given."""
        wanted = columns if columns is not None else definition.names
        if self.spooled:
            return self._decoded[definition.name].select(wanted)
        path = self.file(definition.name)
        if path is None:
            if not self.directory.is_dir():  # a table without rows has no file, but its process has a directory
                raise NotAReelError(f"{self.directory} is gone since the reel was opened: restore it from a copy.")
            return definition.schema.empty_table().select(wanted)
        file = open_parquet(path)
        present = set(file.schema_arrow.names)
        table = file.read(columns=[name for name in wanted if name in present])
        if table.column_names != wanted or columns is None:
            table = conform(definition, table).select(wanted)
        return table


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open one Parquet file, or say how it is damaged."""
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(max(0, size - 4))
            tail = file.read(4)
        if head == b"PAR1" and tail != b"PAR1":
            raise TruncatedReelError(
                f"{path} ends after {size} bytes, before it is complete: copy the reel again from where it was made."
            ) from None
        reason = str(error).splitlines()[0]
        raise CorruptReelError(f"{path} is damaged ({reason}): restore it from a copy.") from None


class Reel:
    """A recording. `reel.ops`, `reel.allocs` ... are pyarrow Tables with a `process` column first."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.meta: Meta = read_meta(self.path)
        directories = sorted(
            entry
            for entry in self.path.iterdir()
            if entry.is_dir() and not entry.name.startswith(".") and _holds_process(entry)
        )
        root = self.meta.get("root")
        directories.sort(key=lambda entry: entry.name != root)
        self.parts = [Process(directory, index) for index, directory in enumerate(directories)]
        self._tables: dict[str, pa.Table] = {}

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """One table of all processes; `columns` reads only those (and `process`)."""
        definition = TABLES.get(name)
        if definition is None:
            raise OptionError(f"There is no table {name!r} in a reel: it has {', '.join(TABLES)}.")
        if columns is not None:
            unknown = [column for column in columns if column not in definition.names]
            if unknown:
                raise OptionError(
                    f"The table {name} has no column {unknown[0]!r}: it has {', '.join(definition.names)}."
                )
        elif name in self._tables:
            return self._tables[name]
        parts = []
        for part in self.parts:
            try:
                table = part.table(definition, columns)
            except (pa.ArrowException, OSError) as error:
                reason = str(error).splitlines()[0]
                raise CorruptReelError(
                    f"{part.directory / name}.parquet is damaged ({reason}): restore it from a copy."
                ) from None
            index = pa.repeat(pa.scalar(part.index, pa.int32()), table.num_rows)
            parts.append(table.add_column(0, pa.field("process", pa.int32()), index))
        if parts:
            result = pa.concat_tables(parts).unify_dictionaries()
        else:
            empty = definition.schema.empty_table()
            if columns is not None:
                empty = empty.select(columns)
            result = empty.add_column(0, pa.field("process", pa.int32()), pa.array([], pa.int32()))
        if columns is None:
            self._tables[name] = result
        return result

    def __getattr__(self, name: str) -> pa.Table:
        if name in TABLES:
            return self.table(name)
        raise AttributeError(f"A reel has no {name!r}: its tables are {', '.join(TABLES)}.")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *TABLES]

    def sql(self, query: str) -> pa.Table:
        """Run one SQL statement of DuckDB's dialect over the tables."""
        from torchreel.reel.query import run

        return run(self, query)

    def process_rows(self) -> list[dict[str, Any]]:
        """The rows of `processes` as dicts, in the order of their index."""
        rows: list[dict[str, Any]] = self.table("processes").to_pylist()
        return rows

    def __repr__(self) -> str:
        count = len(self.parts)
        return f"<Reel {str(self.path)!r}: {count} process{'es' if count != 1 else ''}>"


def _holds_process(directory: Path) -> bool:
    return spool.exists(directory) or (directory / "processes.parquet").exists()


def load(path: str | os.PathLike[str]) -> Reel:
    """Open a recording. Needs no torch, and changes nothing on disk."""
    return Reel(path)
