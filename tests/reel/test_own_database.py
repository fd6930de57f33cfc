"""Questions of one process share a DuckDB, and see nothing of each other.

Tests that look at all tables of the process run in one of their own: other tests may have questions open.
"""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.alone import alone
from torchreel.reel import own_database as module
from torchreel.reel.own_database import own_database


def _tables() -> list[str]:
    with own_database() as connection:
        return [row[0] for row in connection.sql("SELECT table_name FROM duckdb_tables()").fetchall()]


@alone
def test_what_a_question_makes_is_its_own_and_goes_with_it() -> None:
    with own_database() as first, own_database() as second:
        for number, connection in enumerate((first, second)):
            connection.execute(f"CREATE TABLE ops AS SELECT {number} AS n")
            connection.execute(f"CREATE TEMP TABLE found AS SELECT {number + 10} AS n")
        for number, connection in enumerate((first, second)):
            assert connection.sql("SELECT ops.n, found.n FROM ops, found").fetchall() == [(number, number + 10)]
    assert _tables() == []


@alone
def test_a_question_that_fails_leaves_nothing() -> None:
    with pytest.raises(ValueError, match="here"), own_database() as connection:
        connection.execute("CREATE TABLE ops AS SELECT 1 AS n")
        raise ValueError("here")
    assert _tables() == []


def test_many_threads_at_once() -> None:
    def ask(number: int) -> int:
        with own_database() as connection:
            connection.execute(f"CREATE VIEW ops AS SELECT range + {number} AS n FROM range(1000)")
            return int(connection.sql("SELECT min(n) FROM ops").fetchall()[0][0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(50))) == list(range(50))


@alone
def test_a_forked_child_has_a_database_of_its_own() -> None:
    """DuckDB's threads are not in it: whoever waited for them would wait for ever."""
    with own_database() as connection:
        connection.execute("CREATE TABLE ops AS SELECT 1 AS n")
        gc.disable()  # the child does not close what the parent has open
        child = os.fork()
        if child == 0:
            os._exit(0 if _tables() == [] else 1)
        gc.enable()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert connection.sql("SELECT n FROM ops").fetchall() == [(1,)]
    child = os.fork()
    if child == 0:
        os._exit(0 if _tables() == [] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert module._shared._root is None  # it was idle when the child was made
    assert _tables() == []
