"""SQL of a page: one reading statement over the tables of the reel, and nothing else of this machine."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchreel.errors import QueryError, first_line
from torchreel.reel import TABLES, Reel
from torchreel.reel.query import connect

if TYPE_CHECKING:
    import duckdb

SECONDS = 10.0
ROWS = 10_000
_MEMORY = "2GB"


@dataclass(frozen=True)
class Answer:
    """Rows of a query; `cut` if there were more."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    cut: bool


def run(reel: Reel, statement: str, parameters: dict[str, int] | None = None, seconds: float = SECONDS) -> Answer:
    """Run one SELECT or EXPLAIN. Anything else, and whatever takes too long, is a QueryError."""
    import duckdb

    _check(statement)
    connection = connect(reel, TABLES)
    try:
        _confine(connection, reel)
        used = {name: value for name, value in (parameters or {}).items() if f"${name}" in statement}
        timer = threading.Timer(seconds, connection.interrupt)
        timer.start()
        try:
            result = connection.execute(statement, used) if used else connection.execute(statement)
            columns = [column[0] for column in result.description or ()]
            rows = result.fetchmany(ROWS + 1)
        finally:
            timer.cancel()
    except duckdb.InterruptException:
        raise QueryError(
            f"The query took longer than {seconds:g} s and was stopped: ask for less, or use 'torchreel sql'."
        ) from None
    except duckdb.Error as error:
        raise QueryError(str(error).strip()) from None
    finally:
        connection.close()
    return Answer(columns, rows[:ROWS], len(rows) > ROWS)


def _check(statement: str) -> None:
    import duckdb

    try:
        found = duckdb.extract_statements(statement)
    except duckdb.Error as error:
        raise QueryError(f"This is not SQL: {first_line(error)}.") from None
    if len(found) != 1:
        raise QueryError(f"Give one statement: this is {len(found)}.")
    if found[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        kind = found[0].type.name.upper()
        raise QueryError(f"Only SELECT and EXPLAIN are run here, and this is {kind}: use 'torchreel sql' for it.")


def _confine(connection: duckdb.DuckDBPyConnection, reel: Reel) -> None:
    """No file but those of the reel, no network, no variables of Python's, and no way back."""
    directory = str(reel.path.resolve()).replace("'", "''")
    for setting in (
        "SET python_enable_replacements = false",
        f"SET memory_limit = '{_MEMORY}'",
        "SET threads = 2",
        f"SET allowed_directories = ['{directory}/']",
        "SET enable_external_access = false",
        "SET lock_configuration = true",
    ):
        connection.execute(setting)
