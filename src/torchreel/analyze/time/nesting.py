"""Nesting: which shown call is around a call, when calls between them are not shown.

A reel with modules or Python calls has rows of these kinds between the ops and the ranges around them. A table that
leaves them out has to say where their time went: to the nearest call around them that it shows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

# Every round doubles the distance climbed: more than the deepest stack of calls there can be.
_ROUNDS = 32


def kinds_in(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """The kinds of calls that the reel holds."""
    return {str(row[0]) for row in connection.sql("SELECT DISTINCT kind FROM ops WHERE kind IS NOT NULL").fetchall()}


def climb(connection: duckdb.DuckDBPyConnection, table: str, hidden: Collection[str]) -> None:
    """Make a table with one row per call of a hidden kind; `up` is the nearest call around it of another kind."""
    kinds = ", ".join(f"'{kind}'" for kind in sorted(hidden)) or "NULL"
    connection.execute(
        f"CREATE TEMP TABLE {table} AS SELECT process, id, parent AS up, self_ns, self_alloc_bytes "
        f"FROM ops WHERE kind IN ({kinds})"
    )
    above = f"{table} AS a JOIN {table} AS b ON b.process = a.process AND b.id = a.up"
    for _ in range(_ROUNDS):
        if not connection.sql(f"SELECT 1 FROM {above} LIMIT 1").fetchall():
            return
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {table} AS "
            "SELECT a.process, a.id, CASE WHEN b.id IS NULL THEN a.up ELSE b.up END AS up, "
            f"a.self_ns, a.self_alloc_bytes FROM {above.replace(' JOIN ', ' LEFT JOIN ')}"
        )
