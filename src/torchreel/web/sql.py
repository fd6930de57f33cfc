"""SQL of a page: one reading statement over the tables of the reel, and nothing else of this machine."""

from __future__ import annotations

import re
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
            relation = connection.sql(statement, params=used) if used else connection.sql(statement)
            columns = relation.columns
            rows = _with_times_as_text(relation).limit(ROWS + 1).fetchall()
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


# Also within lists and structs. A name in a struct that is such a word changes with it, which shows nothing wrong.
_TIMES = re.compile(r"\b(TIMESTAMP(_S|_MS|_NS)?|TIME|DATE|INTERVAL)\b( WITH TIME ZONE)?")


def _with_times_as_text(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """DuckDB's own text of times: Python's have no nanoseconds and no infinity, and those of a zone ask for pytz."""
    kinds = [(str(kind), _TIMES.sub("VARCHAR", str(kind))) for kind in relation.types]
    if all(kind == shown for kind, shown in kinds):
        return relation
    columns = (f"#{n}" if kind == shown else f"#{n}::{shown}" for n, (kind, shown) in enumerate(kinds, 1))
    return relation.project(", ".join(columns))


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
        "SET preserve_insertion_order = true",  # the rows are cut after they were ordered
        f"SET memory_limit = '{_MEMORY}'",
        "SET threads = 2",
        f"SET allowed_directories = ['{directory}/']",
        "SET enable_external_access = false",
        "SET lock_configuration = true",
    ):
        connection.execute(setting)
