"""SQL over a site: its tables, and those of its reel."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from torchreel.atlas import tables
from torchreel.errors import AtlasError, QueryError, TorchreelError, first_line
from torchreel.reel import TABLES as REEL_TABLES
from torchreel.reel import Reel, load
from torchreel.reel.query import connect

if TYPE_CHECKING:
    import duckdb

_WORD = re.compile(r"\w+")
# Names of ours that are words of SQL: they stand in quotes there, which nobody who reads the contract would guess.
_RESERVED = re.compile(r"""('[^']*'|"[^"]*")|\b(references|column|to)\b""", re.I)
_COPY = re.compile(r"\s*copy\b", re.I)


def run(site: Path, query: str) -> pa.Table:
    """Run one statement and return its rows."""
    import duckdb

    with closing(_connection(site, query)) as connection:
        try:
            try:
                found = connection.sql(query)
            except duckdb.ParserException:
                found = connection.sql(_quoted(query))
            return pa.table({}) if found is None else found.to_arrow_table()
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.Error as error:
            raise QueryError(
                f"The query failed: {first_line(error)}. The tables are {', '.join(tables.TABLES)}, and those of the "
                "reel if the site has one; 'torchreel sql SITE' lists their columns."
            ) from None


def _connection(site: Path, query: str) -> duckdb.DuckDBPyConnection:
    """With the tables of the site, and those of the reel that the query may mean."""
    words = {word.lower() for word in _WORD.findall(query)}
    wanted = [name for name in REEL_TABLES if name in words]
    if not wanted:
        return tables.connect(site)
    reel = reel_of(site)
    if reel is None:
        return tables.connect(site)
    connection = connect(reel, wanted)
    try:
        for name in tables.TABLES:
            tables.add_view(connection, site, name)
    except BaseException:
        connection.close()
        raise
    return connection


def reel_of(site: Path) -> Reel | None:
    """The reel that a site was made with, if it is still there."""
    try:
        about = json.loads((site / "atlas.json").read_text())
        path = about["reel"]["path"] if about.get("reel") else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AtlasError(
            f"{site / 'atlas.json'} cannot be read ({first_line(error, 200)}): make the site anew."
        ) from None
    if not isinstance(path, str):
        return None
    try:
        return load(path)
    except TorchreelError:
        return None


def _quoted(query: str) -> str:
    """The query with our names that are words of SQL in quotes."""
    words = ("references", "column") if _COPY.match(query) else ("references", "column", "to")

    def quote(found: re.Match[str]) -> str:
        return f'"{found[2].lower()}"' if found[2] and found[2].lower() in words else found[0]

    return _RESERVED.sub(quote, query)
