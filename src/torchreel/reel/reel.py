"""A reel on disk, opened: its tables as pyarrow.Table, and SQL over them.

Opening reads meta.json and directory listings; a table is read when it is first asked for.
Reading never writes. A process that is still recording, or that died before it could close its
part, has a `spool/` instead of Parquet files: it is decoded in memory, each time the reel is opened.
Whenever it is decoded, it is what it was when the reel was opened: how far it went is noted then.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from torchreel.errors import NotAReelError, OptionError, ReelError
from torchreel.reel import spool
from torchreel.reel.files import is_unicode, open_parquet, read_row_groups, read_table
from torchreel.reel.joining import CLAIM, read_claim
from torchreel.reel.meta import Meta, read_meta
from torchreel.reel.stable_path import StablePath
from torchreel.reel.tables import PROCESSES, TABLES, TableDefinition

if TYPE_CHECKING:
    from torchreel.reel.query import Database


# Processes that are still being recorded whose files stay open: two descriptors each, of which there may be 1,024.
_KEPT_OPEN = 64


class Process:
    """One process's part of a reel."""

    def __init__(self, directory: Path, names: frozenset[str], index: int, keep_open: bool) -> None:
        self._stable_path = StablePath(directory)
        self.index = index
        self.name = directory.name
        self._extent = spool.Extent(directory, keep_open) if spool.DIRECTORY in names else None
        if self._extent is not None and not spool.exists(directory):  # closed since its directory was listed
            self._extent, names = None, _names_in(directory)
        self._names = names  # of what lay in the directory when the reel was opened
        # Whether this part was not closed then, and is read from what was streamed to disk, if anything was.
        self.spooled = self._extent is not None or "processes.parquet" not in names
        self._claim = read_claim(directory) if self.spooled else None
        # Whether DuckDB cannot read its files: there are none yet, or their path has no UTF-8.
        self.in_memory = self.spooled or not is_unicode(directory)

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self._stable_path.path

    def file(self, name: str) -> Path | None:
        """The Parquet file of a table, if it has one."""
        file = f"{name}.parquet"
        return self.directory / file if not self.spooled and file in self._names else None

    def scannable(self, name: str) -> Path | None:
        """The same, as a path that DuckDB can read."""
        return None if self.in_memory else self.file(name)

    @functools.cached_property
    def _decoded(self) -> dict[str, pa.Table]:
        if self._extent is not None:
            return spool.read(self.directory, self._extent)
        empty = {name: definition.schema.empty_table() for name, definition in TABLES.items()}
        if self._claim is None:
            return empty
        # It began and had written nothing: it records still, or was killed at once.
        at = self._claim.time_ns
        row = {**self._claim.said, "name": self.name, "start_ns": at, "end_ns": at, "lost_events": 0}
        return {**empty, PROCESSES.name: spool.process_row({**row, "complete": False}, self.name)}

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
        return read_table(path, definition, wanted)

    def batches(self, definition: TableDefinition, columns: list[str]) -> Iterator[pa.Table]:
        """Some columns of the table, part by part: of a large one, only a part is in memory at a time."""
        path = self.file(definition.name)
        if path is None:
            yield self.table(definition, columns)
        else:
            yield from read_row_groups(path, definition, columns)

    def problem(self, tables: Iterable[str] = TABLES) -> ReelError | None:
        """Read tables wholly, as Arrow and as DuckDB do; returns what is wrong with the first that cannot be read."""
        from torchreel.reel.query import scan

        for name in tables:
            try:
                self.table(TABLES[name])
                path = self.scannable(name)
                if path is not None:
                    scan(path)
            except ReelError as error:
                return error
        return None


class Reel:
    """A recording. `reel.ops`, `reel.allocs` ... are pyarrow Tables with a `process` column first."""

    def __init__(self, path: str | os.PathLike[str], *, skip_damaged: bool = False) -> None:
        self._stable_path = StablePath(Path(path))
        self.meta: Meta = read_meta(self.path)
        found = process_directories(self.path)
        root = self.meta.get("root")
        directories = sorted(found, key=lambda entry: (entry.name != root, entry))
        keep_open = sum(spool.DIRECTORY in names for names in found.values()) <= _KEPT_OPEN
        self.parts = [Process(each, found[each], index, keep_open) for index, each in enumerate(directories)]
        # What `skip_damaged` left out, a sentence for each process. The others keep their index.
        self.left_out: tuple[str, ...] = ()
        if skip_damaged:
            self._leave_out_damaged()
        self._begin_to_read()

    @classmethod
    def of_parts(cls, path: Path, meta: Meta, parts: Sequence[Process]) -> Reel:
        """A reel of parts that are open already."""
        reel = cls.__new__(cls)
        reel._stable_path = StablePath(path)
        reel.meta = meta
        reel.parts = list(parts)
        reel.left_out = ()
        reel._begin_to_read()
        return reel

    def _begin_to_read(self) -> None:
        self._tables: dict[str, pa.Table] = {}
        self.database: Database | None = None  # made by the first statement of SQL

    @property
    def path(self) -> Path:
        """Where it is: as it was named, or the whole path once the program has gone to another directory."""
        return self._stable_path.path

    def _leave_out_damaged(self) -> None:
        problems = {part: problem for part in self.parts if (problem := part.problem()) is not None}
        if problems and len(problems) == len(self.parts):
            raise next(iter(problems.values()))
        self.parts = [part for part in self.parts if part not in problems]
        self.left_out = tuple(f"Process {part.name} is left out: {problem}" for part, problem in problems.items())

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
        result = self.rows_of(name, self.parts, columns)
        if columns is None:
            self._tables[name] = result
        return result

    def rows_of(self, name: str, parts: Sequence[Process], columns: list[str] | None = None) -> pa.Table:
        """A table, or some columns of it, of some processes."""
        definition = TABLES[name]
        tables = []
        for part in parts:
            table = part.table(definition, columns)
            index = pa.repeat(pa.scalar(part.index, pa.int32()), table.num_rows)
            tables.append(table.add_column(0, pa.field("process", pa.int32()), index))
        if tables:
            return pa.concat_tables(tables).unify_dictionaries()
        empty = definition.schema.empty_table()
        if columns is not None:
            empty = empty.select(columns)
        return empty.add_column(0, pa.field("process", pa.int32()), pa.array([], pa.int32()))

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

    def view(
        self, height: int = 720, *, budget: int | str | None = None, sources: bool = True, other: Reel | None = None
    ) -> Any:
        """The viewer's page with this reel in it, for a notebook: it works remotely, and in a saved notebook.

        It is the file of `torchreel export --to html` in a frame, of at most `budget` bytes ("5MB" unless given); the
        page says what had no room. `sources=False` leaves out texts of source files. `other` is a reel to compare with.
        """
        return _notebook().view(self, height, budget, sources, other)

    def _repr_html_(self) -> str:
        """What a notebook shows of it: what was recorded, and the costliest ops."""
        text: str = _notebook().summary_html(self)
        return text

    def process_rows(self) -> list[dict[str, Any]]:
        """The rows of `processes` as dicts, in the order of their index."""
        rows: list[dict[str, Any]] = self.table("processes").to_pylist()
        return rows

    def __repr__(self) -> str:
        count = len(self.parts)
        return f"<Reel {str(self.path)!r}: {count} process{'es' if count != 1 else ''}>"


def process_directories(path: Path) -> dict[Path, frozenset[str]]:
    """The directories of a reel's processes, and the names of what lies in each."""
    return {entry: names for entry in path.iterdir() if _holds_process(names := _names_in(entry))}


def _notebook() -> Any:
    """How notebooks show reels: a room that stands on this one, and is named only when it is asked for."""
    return importlib.import_module("torchreel.web.notebook")


def _names_in(entry: Path) -> frozenset[str]:
    """What lies in a directory of a reel; nothing, if it is none."""
    if entry.name.startswith("."):
        return frozenset()
    try:
        return frozenset(each.name for each in entry.iterdir())
    except (NotADirectoryError, FileNotFoundError):
        return frozenset()


def _holds_process(names: frozenset[str]) -> bool:
    return not names.isdisjoint((spool.DIRECTORY, "processes.parquet", CLAIM))


def load(path: str | os.PathLike[str], *, skip_damaged: bool = False) -> Reel:
    """Open a recording. Needs no torch, and changes nothing on disk.

    With `skip_damaged` every file is read first, and a process of which one is damaged is left out: `reel.left_out`
    says which, and why. Without it, a damaged file is an error when it is read.
    """
    return Reel(path, skip_damaged=skip_damaged)


__all__ = ["Process", "Reel", "load", "open_parquet"]
