"""A database of its own for each question, all in one DuckDB: to start another one takes longer than a small question.

What a question makes is seen by it alone, and gone when it ends. The ends of Parquet files are read once for all.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torchreel.reel.query import new_connection, prepare

if TYPE_CHECKING:
    import duckdb


class _Shared:
    """The one DuckDB of this process, while somebody asks it or has asked it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root: duckdb.DuckDBPyConnection | None = None
        self._numbers = itertools.count()
        self._in_use = 0

    def enter(self) -> tuple[duckdb.DuckDBPyConnection, str]:
        with self._lock:
            if self._root is None:
                self._root = new_connection()
            name = f"question_{next(self._numbers)}"
            connection = self._root.cursor()
            connection.execute(f"ATTACH ':memory:' AS {name}")
            connection.execute(f"USE {name}")
            prepare(connection)
            self._in_use += 1
        return connection, name

    def leave(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        connection.close()
        with self._lock:
            self._in_use -= 1
            if self._root is not None:
                self._root.execute(f"DETACH {name}")

    def close_if_idle(self) -> None:
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._root is not None and not self._in_use:
                self._root.close()
                self._root = None
        finally:
            self._lock.release()


_shared = _Shared()


@contextmanager
def own_database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to an empty database, for one question."""
    shared = _shared
    connection, name = shared.enter()
    try:
        yield connection
    finally:
        shared.leave(connection, name)


def _anew() -> None:
    """In a forked child, which has none of DuckDB's threads."""
    global _left_behind, _shared
    _left_behind, _shared = _shared, _Shared()


_left_behind: _Shared | None = None  # what the parent used at that moment: closing it would wait for its threads
# Before a fork there is nobody to wait for, unless another thread asks something.
os.register_at_fork(before=lambda: _shared.close_if_idle(), after_in_child=_anew)
# DuckDB writes a page about each connection that outlives the interpreter.
atexit.register(lambda: _shared.close_if_idle())
