"""The tables of an atlas and what each column means. docs/atlas.md is made from this file.

They lie in `data/` of the site: a Parquet file each, or, for a table of many rows, several whose names end in a number:
each has the rows of some files, so that a changed file changes one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from torchreel.errors import AtlasError, first_line
from torchreel.reel.tables import TEXT, Column, TableDefinition

if TYPE_CHECKING:
    import duckdb

PARTS = 64
MOST_ROWS = {"": 50_000, "references": 500_000}
"""A table with more rows is written in parts, so that a changed file changes one of them."""

COSTS: tuple[tuple[str, pa.DataType, str], ...] = (
    ("calls", pa.int64(), "calls whose innermost frame is here; null without a reel"),
    ("self_ns", pa.int64(), "their own time: forward_ns and backward_ns together"),
    ("forward_ns", pa.int64(), "the part of it in forward"),
    ("backward_ns", pa.int64(), "the part of it in backward calls that this caused, and all below them"),
    ("total_ns", pa.int64(), "own time of all calls that have this anywhere in their stack, each once"),
    ("alloc_bytes", pa.int64(), "bytes that the calls allocated and did not free themselves"),
    ("flops", pa.int64(), "floating point operations of the calls, null where no formula is known"),
    ("total_backward_ns", pa.int64(), "the part of total_ns in backward; null for operators and kernels"),
)


def _table(name: str, row: str, *columns: tuple[str, pa.DataType, str]) -> TableDefinition:
    return TableDefinition(name, row, tuple(Column(*column) for column in columns))


TABLES: dict[str, TableDefinition] = {
    table.name: table
    for table in (
        _table(
            "files",
            "one file",
            ("id", pa.int32(), "referred to by the other tables; a file keeps it while it has its path"),
            ("root", TEXT, "name of its root"),
            ("path", pa.string(), "below the root"),
            ("language", TEXT, "python, c++, cuda, yaml, markdown ..."),
            ("bytes", pa.int64(), "its size"),
            ("lines", pa.int32(), "its lines"),
            ("sha256", pa.string(), "of its bytes, in hexadecimal"),
            ("doc", pa.string(), "its docstring or first comment"),
            ("errors", pa.int32(), "places that were not understood"),
            *COSTS,
        ),
        _table(
            "symbols",
            "one name that a file defines",
            ("id", pa.int64(), "referred to by references"),
            ("file", pa.int32(), "id in files"),
            ("name", pa.string(), "without its scope"),
            ("scope", TEXT, "the names around it, joined with :: or ."),
            ("kind", TEXT, "namespace, class, struct, union, enum, enumerator, function, method, field, variable ..."),
            ("line", pa.int32(), "of the name"),
            ("end_line", pa.int32(), "the last of the definition"),
            ("signature", pa.string(), "as the source has it, on one line"),
            ("doc", pa.string(), "its docstring, or the comment above it"),
            ("declaration", pa.bool_(), "whether it is only declared here"),
            *COSTS,
        ),
        _table(
            "imports",
            "one import, #include, or path that a text names",
            ("file", pa.int32(), "id in files"),
            ("line", pa.int32(), "where"),
            ("target", pa.string(), "what is imported, as the source has it"),
            ("to", pa.int32(), "id in files, else null: in no root"),
        ),
        _table(
            "references",
            "one use of a name, and one thing that it may mean",
            ("file", pa.int32(), "id in files"),
            ("line", pa.int32(), "where, from 1"),
            ("column", pa.int32(), "where in the line, in characters from 0"),
            ("name", TEXT, "the name"),
            ("symbol", pa.int64(), "id in symbols; null if it is in no root, or has more than 8 definitions"),
            (
                "how",
                TEXT,
                "scope: by the scopes of the file; import: through an import or #include; name: only the name agrees, "
                "and each of up to 8 definitions has a row; null: not found",
            ),
        ),
        _table(
            "keywords",
            "one word by which a file can be found",
            ("file", pa.int32(), "id in files"),
            ("rank", pa.int32(), "from 1, the best"),
            ("keyword", pa.string(), "the word"),
            ("kind", TEXT, "defines, uses, or speaks: a name as words of the documentation"),
            ("line", pa.int32(), "the first"),
            ("count", pa.int32(), "how often"),
        ),
        _table(
            "lines",
            "one line of source that a run entered",
            ("file", pa.int32(), "id in files, else null: in no root"),
            ("path", TEXT, "as the reel has it"),
            ("line", pa.int32(), "line number"),
            *COSTS,
        ),
        _table(
            "line_ops",
            "one op on one line",
            ("path", TEXT, "as the reel has it"),
            ("line", pa.int32(), "line number"),
            ("op", TEXT, "as ops.name of the reel has it"),
            ("overload", TEXT, "its overload"),
            ("backward", pa.bool_(), "whether the calls are backward ones, or below one"),
            ("calls", pa.int64(), "how many"),
            ("self_ns", pa.int64(), "their own time"),
            ("alloc_bytes", pa.int64(), "bytes that they allocated and did not free themselves"),
            ("flops", pa.int64(), "null where no formula is known"),
        ),
        _table(
            "operators",
            "one overload of an operator that ran or that a file registers",
            ("name", pa.string(), "with its namespace: aten::add"),
            ("overload", pa.string(), "Tensor, Scalar, out ..., or empty"),
            ("schema", pa.string(), "null if it is not known"),
            ("derivative", pa.string(), "formulas of derivatives.yaml, else null"),
            ("kernel", pa.string(), "the C++ function that runs it on a CPU, else null"),
            ("kernel_file", pa.int32(), "id in files of its definition, else null"),
            ("kernel_line", pa.int32(), "its line, else null"),
            *COSTS,
        ),
    )
}


def write(site: Path, name: str, table: pa.Table) -> None:
    """Write a table as one file, in the order of its rows."""
    import pyarrow.parquet as pq

    data = site / "data"
    data.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.cast(TABLES[name].schema), data / f"{name}.parquet", compression="zstd")


def files_of(site: Path, name: str) -> list[Path]:
    """The files of a table, in order."""
    pattern = re.compile(re.escape(name) + r"(-\d+)?\.parquet")
    data = site / "data"
    return sorted(path for path in data.iterdir() if pattern.fullmatch(path.name)) if data.is_dir() else []


def read(site: Path, name: str, columns: list[str] | None = None) -> pa.Table:
    """A table, with the columns that are asked for."""
    schema = TABLES[name].schema
    wanted = columns or schema.names
    target = pa.schema([schema.field(column) for column in wanted])
    try:
        tables = [read_file(path, wanted).cast(target) for path in files_of(site, name)]
    except (pa.ArrowException, OSError) as error:
        raise AtlasError(
            f"{site}: the table {name} cannot be read ({first_line(error, 200)}): make the site anew."
        ) from None
    return pa.concat_tables(tables).unify_dictionaries() if tables else target.empty_table()


def read_file(path: Path, columns: list[str] | None = None) -> pa.Table:
    """One file of a table. `pq.read_table` would do, but it imports pandas where there is one."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return file.read(columns)


def connect(site: Path, names: Iterable[str] = TABLES) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection in which the tables of a site are views."""
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.execute("SET python_enable_replacements = false")
    for name in names:
        add_view(connection, site, name)
    return connection


def add_view(connection: duckdb.DuckDBPyConnection, site: Path, name: str) -> None:
    import duckdb

    paths = [str(path.resolve()) for path in files_of(site, name)]
    if not paths:
        raise AtlasError(f"{site} has no table {name}: make the site anew.")
    listed = ", ".join("'" + re.sub(r"([\[*?])", r"[\1]", path).replace("'", "''") + "'" for path in paths)
    try:
        connection.execute(f'CREATE OR REPLACE VIEW "{name}" AS SELECT * FROM read_parquet([{listed}])')
    except duckdb.Error as error:
        raise AtlasError(
            f"{site}: the table {name} cannot be read ({first_line(error, 200)}): make the site anew."
        ) from None


def row_counts(site: Path) -> dict[str, int]:
    """How many rows each table has; reads every table, so one that is damaged is found."""
    with closing(connect(site)) as connection:
        return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0] for name in TABLES}
