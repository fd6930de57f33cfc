"""A connection to a reel's tables for one question, in which damaged files are told from mistakes of ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torchreel.errors import QueryError, first_line
from torchreel.reel import TABLES, Reel
from torchreel.reel.own_database import own_database
from torchreel.reel.query import open_tables, unreadable

if TYPE_CHECKING:
    import duckdb


Range = tuple[int, int]
"""Calls that began in it are looked at: from a time since the epoch on, and before another."""


@contextmanager
def opened(
    reel: Reel, tables: Iterable[str] = TABLES, within: Range | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to the tables that a question needs; a file that cannot be read on the way is a CorruptReelError.

    With a range, `ops` has only the calls that began in it.
    """
    tables = tuple(tables)
    with own_database() as connection:
        open_tables(connection, reel, tables)
        with reading(reel, tables):
            if within is not None:
                connection.execute("ALTER VIEW ops RENAME TO all_ops")
                begin, end = within
                connection.execute(
                    f"CREATE VIEW ops AS SELECT * FROM all_ops WHERE start_ns >= {begin:d} AND start_ns < {end:d}"
                )
            yield connection


@contextmanager
def reading(reel: Reel, tables: Iterable[str] = TABLES) -> Iterator[None]:
    """Errors of DuckDB's while tables are read, as what they say of the reel."""
    import duckdb

    try:
        yield
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
        raise  # the statement is wrong, not the reel
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except duckdb.OutOfMemoryException as error:
        raise QueryError(f"There is too little memory to read {reel.path}: {first_line(error)}.") from None
    except duckdb.Error as error:
        raise unreadable(reel, tables, error) from None
