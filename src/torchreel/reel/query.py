"""SQL over a reel: DuckDB reads the Parquet files in place.

A table is one scan of the files of all processes, joined with a small table that says which process each file is of:
the cost of a query grows with rows and files, not with the text that would name each process. What is held in memory,
because its process has not closed it, is joined to that. A table is opened when a statement first names it.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
import weakref
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from torchreel.errors import CorruptReelError, QueryError, TorchreelError, first_line
from torchreel.reel.files import damaged
from torchreel.reel.tables import TABLES, TEXT

if TYPE_CHECKING:
    import duckdb

    from torchreel.reel.reel import Reel

_SCHEMA = "files"  # holds what the views are made of
_FILE = "torchreel_file"  # the column that has the path of a row's file
_WORD = re.compile(r"\w+")
# Statements that ask which tables there are, or name them in ways that no list of words shows.
_ABOUT_ALL = re.compile(r"\b(show|describe|summarize|information_schema|sqlite_master|pg_\w+|duckdb_\w+|query)\b", re.I)
_TYPES = {
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.string(): "VARCHAR",
    TEXT: "VARCHAR",
    pa.list_(pa.int32()): "INTEGER[]",
    pa.list_(pa.int64()): "BIGINT[]",
}


def connect(reel: Reel, tables: Iterable[str] = TABLES) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection of its own in which tables of the reel are views: all, or, which is quicker, some."""
    connection = _connection()
    try:
        open_tables(connection, reel, tables)
    except BaseException:
        connection.close()
        raise
    return connection


def open_tables(connection: duckdb.DuckDBPyConnection, reel: Reel, tables: Iterable[str]) -> None:
    """Make tables of the reel views of a connection that prepare() has seen."""
    for name in tables:
        _open(connection, reel, name)


def narrow(connection: duckdb.DuckDBPyConnection, reel: Reel, process: int, tables: Iterable[str]) -> None:
    """Make the views `own_ops` and so on, each a table of one process alone: asking them opens one file, not all."""
    import duckdb

    (part,) = (part for part in reel.parts if part.index == process)
    for name in tables:
        path = part.scannable(name)
        try:
            if path is None:
                connection.register(f"_own_{name}", reel.rows_of(name, [part]))
                source = f"SELECT * FROM _own_{name}"
            else:
                scan = f"read_parquet([{_quoted(_not_a_pattern(str(Path.cwd() / path)))}], hive_partitioning = false)"
                source = f"SELECT {process}::INTEGER AS process, {_columns(connection, reel, name, scan)} FROM {scan}"
            connection.execute(f"CREATE OR REPLACE VIEW own_{name} AS {source}")
        except duckdb.Error as error:
            raise unreadable(reel, [name], error) from None


def scan(path: Path) -> None:
    """Read a whole file, or raise what DuckDB finds wrong with it: it looks at parts that Arrow does not."""
    import duckdb

    source = f"read_parquet([{_quoted(_not_a_pattern(str(Path.cwd() / path)))}], hive_partitioning = false)"
    with closing(_connection()) as connection:
        try:
            connection.execute(f"SELECT count(COLUMNS(*)) FROM {source}").fetchall()
        except duckdb.Error as error:
            raise damaged(path, error) from None


def run(reel: Reel, query: str) -> pa.Table:
    """Run one statement and return its rows."""
    if reel.database is None:
        reel.database = Database()
    if reel.database.is_question(query):
        return reel.database.run(reel, query)
    # What it makes or sets must not be there for the next statement.
    with closing(Database()) as own:
        return own.run(reel, query)


def unreadable(reel: Reel, tables: Iterable[str], error: Exception) -> TorchreelError:
    """The sentence for an error of DuckDB's while it read tables: which file is damaged, as far as that is found."""
    found = _damage(reel, tables)
    if found is not None:
        return found
    return CorruptReelError(f"{reel.path} cannot be read ({first_line(error)}): restore it from a copy.")


def _damage(reel: Reel, tables: Iterable[str]) -> TorchreelError | None:
    """What is wrong with the first file of these tables that cannot be read."""
    tables = tuple(tables)
    return next((problem for part in reel.parts if (problem := part.problem(tables)) is not None), None)


class Database:
    """The connection that a reel keeps between statements, with the tables that were named so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._opened: dict[str, TorchreelError | None] = {}  # each table, and why it could not be opened
        _kept.add(self)

    def is_question(self, query: str) -> bool:
        """Whether a statement leaves nothing behind on its connection."""
        import duckdb

        questions = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
        with self._lock:
            try:
                statements = self._connected().extract_statements(query)
            except duckdb.Error:
                return False  # nonsense, which running it explains
            return bool(statements) and all(one.type in questions for one in statements)

    def run(self, reel: Reel, query: str) -> pa.Table:
        """Open the tables that a statement names, and run it."""
        import duckdb

        with self._lock:
            named = _named(query)
            connection = self._connected()
            self._open(reel, named)
            try:
                result = connection.sql(query)
                if result is not None:
                    _refuse_too_large(result)
                table: pa.Table = pa.table({}) if result is None else result.to_arrow_table()
            except duckdb.InterruptException:
                raise KeyboardInterrupt from None
            except duckdb.Error as error:
                raise self._problem(reel, named, error) from None
            return table

    def _connected(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = _connection()
        return self._connection

    def _open(self, reel: Reel, named: list[str]) -> None:
        for name in named:
            if name not in self._opened:
                try:
                    _open(self._connected(), reel, name)
                    self._opened[name] = None
                except TorchreelError as error:  # said when the table is missed: the word may mean something else
                    self._opened[name] = error

    def _problem(self, reel: Reel, named: list[str], error: Exception) -> TorchreelError:
        import duckdb

        if isinstance(error, duckdb.CatalogException):
            problems = [problem for name in named if (problem := self._opened[name]) is not None]
            if problems:
                return problems[0]
        elif not isinstance(error, (duckdb.ParserException, duckdb.BinderException, duckdb.OutOfMemoryException)):
            found = _damage(reel, named)
            if found is not None:
                return found
        return QueryError(
            f"The query failed: {first_line(error)}. The tables are {', '.join(TABLES)}; "
            "'torchreel sql REEL \"describe ops\"' lists a table's columns."
        )

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._opened.clear()

    def close_if_idle(self) -> None:
        """End the connection, unless a statement runs on another thread."""
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()


def _refuse_too_large(result: duckdb.DuckDBPyRelation) -> None:
    """DuckDB gives a UHUGEINT to Arrow as a signed number: the largest ones would be negative."""
    for name, kind in zip(result.columns, result.types, strict=True):
        if "UHUGEINT" in str(kind):
            raise QueryError(
                f"The column {name} is a UHUGEINT, which no table of Arrow's can hold: cast it, as in x::VARCHAR."
            )


_kept: weakref.WeakSet[Database] = weakref.WeakSet()


def _close_idle() -> None:
    for database in list(_kept):
        database.close_if_idle()


# DuckDB's threads are not in a forked child, which would wait for them for ever.
os.register_at_fork(before=_close_idle)
# DuckDB writes a page about each connection that outlives the interpreter.
atexit.register(_close_idle)


def _connection() -> duckdb.DuckDBPyConnection:
    connection = new_connection()
    prepare(connection)
    return connection


def new_connection() -> duckdb.DuckDBPyConnection:
    """A DuckDB of its own, in memory."""
    import duckdb

    connection: duckdb.DuckDBPyConnection = duckdb.connect(":memory:")
    return connection


def prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Set what we rely on, and make room for what the views are made of."""
    connection.execute("SET preserve_insertion_order = false")
    # A table that is not there is an error, not a variable of ours that happens to have its name.
    connection.execute("SET python_enable_replacements = false")
    # A statement is planned, then run: each time the ends of all files are needed.
    connection.execute("SET parquet_metadata_cache = true")
    connection.execute(f"CREATE SCHEMA {_SCHEMA}")


def _named(query: str) -> list[str]:
    """The tables that a statement may read: whose names it holds as words, wherever."""
    if _ABOUT_ALL.search(query):
        return list(TABLES)
    words = {word.lower() for word in _WORD.findall(query)}
    return [name for name in TABLES if name in words]


def _open(connection: duckdb.DuckDBPyConnection, reel: Reel, name: str) -> None:
    """Make the view that stands for one table."""
    import duckdb

    try:
        scan = _scan(connection, reel, name)
        rows = _in_memory(connection, reel, name)
        if scan is None or not _view_as_written(connection, name, scan, rows):
            connection.execute(_view(name, [*_casting(connection, reel, name, scan), *rows]))
    except duckdb.Error as error:
        raise unreadable(reel, [name], error) from None


def _view(name: str, sources: Sequence[str]) -> str:
    return f"CREATE VIEW {name} AS {' UNION ALL '.join(sources)}"


def _scan(connection: duckdb.DuckDBPyConnection, reel: Reel, name: str) -> str | None:
    """What reads all files of a table, with the process of each row; None if there is no file."""
    here = Path.cwd()
    files = {str(here / path): part.index for part in reel.parts if (path := part.scannable(name)) is not None}
    if not files:
        return None
    owners = f"{_SCHEMA}.{name}"
    connection.execute(f"CREATE TABLE {owners} ({_FILE} VARCHAR, process INTEGER)")
    connection.execute(
        f"INSERT INTO {owners} SELECT unnest($1::VARCHAR[]), unnest($2::INTEGER[])",
        [list(files), list(files.values())],
    )
    paths = ", ".join(_quoted(_not_a_pattern(path)) for path in files)
    options = f"filename = '{_FILE}', union_by_name = true, hive_partitioning = false"
    return f"read_parquet([{paths}], {options}) JOIN {owners} USING ({_FILE})"


def _view_as_written(connection: duckdb.DuckDBPyConnection, name: str, scan: str, rows: Sequence[str]) -> bool:
    """Make the view if files have all columns, and of the right types: then they need to be opened only once."""
    import duckdb

    wanted = _types(name)
    columns = ", ".join(f'"{column}"' for column in wanted)
    try:
        connection.execute(_view(name, [f"SELECT process, {columns} FROM {scan}", *rows]))
    except duckdb.BinderException:
        return False
    found = connection.execute(
        "SELECT column_name, data_type FROM duckdb_columns()"
        " WHERE database_name = current_database() AND schema_name = 'main' AND table_name = ?",
        [name],
    ).fetchall()
    if {column: kind for column, kind in found if column != "process"} == wanted:
        return True
    connection.execute(f"DROP VIEW {name}")
    return False


def _casting(connection: duckdb.DuckDBPyConnection, reel: Reel, name: str, scan: str | None) -> list[str]:
    """The SELECT in which columns that no file has are null, and those of another width are cast."""
    return [] if scan is None else [f"SELECT process, {_columns(connection, reel, name, scan)} FROM {scan}"]


def _columns(connection: duckdb.DuckDBPyConnection, reel: Reel, name: str, scan: str) -> str:
    found = {column: kind for column, kind, *_ in connection.execute(f"DESCRIBE FROM {scan}").fetchall()}
    wanted = _types(name)
    if any(column in found and found[column] != kind for column, kind in wanted.items()):
        damage = _damage(reel, [name])
        if damage is not None:
            raise damage
    return ", ".join(
        f'{_value(column, found)}::{kind} AS "{column}"' if found.get(column) != kind else f'"{column}"'
        for column, kind in wanted.items()
    )


def _types(name: str) -> dict[str, str]:
    return {column.name: _TYPES[column.type] for column in TABLES[name].columns}


def _value(column: str, found: Collection[str]) -> str:
    return f'"{column}"' if column in found else "NULL"


def _in_memory(connection: duckdb.DuckDBPyConnection, reel: Reel, name: str) -> list[str]:
    """The SELECT of what DuckDB cannot read from files; of no rows, if there is nothing at all."""
    parts = [part for part in reel.parts if part.in_memory]
    if not parts and any(part.scannable(name) is not None for part in reel.parts):
        return []
    connection.register(f"_{name}_in_memory", reel.rows_of(name, parts))
    return [f"SELECT * FROM _{name}_in_memory"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _not_a_pattern(path: str) -> str:
    """The path such that DuckDB takes no character of it for a wildcard."""
    return re.sub(r"([\[*?])", r"[\1]", path)
