"""SQL over a reel: DuckDB reads the Parquet files in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from torchreel.errors import CorruptReelError, QueryError
from torchreel.reel.meta import FORMAT_VERSION
from torchreel.reel.reel import open_parquet
from torchreel.reel.tables import TABLES

if TYPE_CHECKING:
    import duckdb

    from torchreel.reel.reel import Reel


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _view(connection: duckdb.DuckDBPyConnection, reel: Reel, name: str) -> str:
    """The SELECT that stands for one table; processes that were never closed are registered from memory."""
    definition = TABLES[name]
    parts = []
    for part in reel.parts:
        path = part.file(name)
        columns = ", ".join(f'"{column}"' for column in definition.names)
        if path is not None and reel.meta["written_format"] < FORMAT_VERSION:
            present = set(open_parquet(path).schema_arrow.names)
            columns = ", ".join(f'"{c}"' if c in present else f'NULL AS "{c}"' for c in definition.names)
        if path is not None:
            parts.append(f"SELECT {part.index}::INTEGER AS process, {columns} FROM read_parquet({_quoted(str(path))})")
        elif part.spooled:
            table = part.table(definition)
            if table.num_rows:
                registered = f"_{name}_{part.index}"
                connection.register(registered, table)
                parts.append(f"SELECT {part.index}::INTEGER AS process, {columns} FROM {registered}")
    if not parts:
        registered = f"_{name}_empty"
        connection.register(registered, reel.table(name))
        return f"SELECT * FROM {registered}"
    return " UNION ALL ".join(parts)


def connect(reel: Reel, tables: Iterable[str] = TABLES) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection in which tables of the reel are views: all of them, or, which is quicker, some."""
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.execute("SET preserve_insertion_order = false")
    for name in tables:
        try:
            connection.execute(f"CREATE VIEW {name} AS {_view(connection, reel, name)}")
        except duckdb.Error as error:
            raise CorruptReelError(
                f"The table {name} of {reel.path} cannot be read ({_first_line(error)}): restore it from a copy."
            ) from None
    return connection


def run(reel: Reel, query: str) -> pa.Table:
    """Run one statement and return its rows."""
    import duckdb

    connection = connect(reel)
    try:
        result = connection.sql(query)
        table: pa.Table = pa.table({}) if result is None else result.to_arrow_table()
        return table
    except duckdb.Error as error:
        raise QueryError(
            f"The query failed: {_first_line(error)}. The tables are {', '.join(TABLES)}; "
            "'torchreel sql REEL \"describe ops\"' lists a table's columns."
        ) from None
    finally:
        connection.close()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
