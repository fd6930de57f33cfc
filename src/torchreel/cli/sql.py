"""`torchreel sql`: any question, in SQL."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchreel.cli.sources import open_reel, skip_damaged_option
from torchreel.cli.terminal.formats import FORMATS, write_csv, write_json, write_markdown
from torchreel.cli.terminal.interrupt import interruptible
from torchreel.errors import QueryError
from torchreel.reel.plain import plain

if TYPE_CHECKING:
    import pyarrow as pa

    from torchreel.cli.terminal.table import Column
    from torchreel.reel import Reel
    from torchreel.reel.tables import TableDefinition


_COLUMNS_WIDTH = 55  # so that the list of tables fits 80 columns


@click.command("sql")
@click.argument("reel")
@click.argument("query", required=False)
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print.")
@skip_damaged_option
def command(reel: str, query: str | None, form: str, skip_damaged: bool) -> None:
    """Run a query of DuckDB's SQL over the tables of REEL; without one, list the tables.

    Every table has a column `process`; ids are unique together with it. Times are nanoseconds. In the place of a
    reel, a site of 'torchreel atlas' can be named: its own tables are there, and those of its reel.

    \b
    torchreel sql run.reel
        the tables, how many rows each has, and their columns
    torchreel sql run.reel "select name, count(*) n from ops group by name order by n desc limit 10"
        what was called most often
    torchreel sql run.reel "select step, max(total) from allocs join steps
                            on time_ns between start_ns and end_ns group by step order by step"
        the most memory in each step
    torchreel sql run.reel "select * from ops where dur_ns > 1e6" --format csv > slow.csv
        calls longer than a millisecond, for a spreadsheet
    torchreel sql run.reel "copy ops to 'ops.parquet'"
        a table of all processes as one file
    torchreel sql site "select path, self_ns from files order by self_ns desc limit 10"
        the costliest source files of an atlas
    """
    if (Path(reel) / "atlas.json").is_file():
        return _of_site(Path(reel), query, form)
    opened = open_reel(reel, skip_damaged)
    if query is None or not query.strip():
        _list_reel(opened, form)
    else:
        _print_rows(interruptible(lambda: opened.sql(query)), form)


def _of_site(site: Path, query: str | None, form: str) -> None:
    from torchreel.atlas import query as site_query
    from torchreel.atlas.tables import TABLES, row_counts

    if query is None or not query.strip():
        counts = row_counts(site)
        _list_tables(TABLES, [counts[name] for name in TABLES], form)
    else:
        _print_rows(interruptible(lambda: site_query.run(site, query)), form)


def _list_reel(reel: Reel, form: str) -> None:
    from torchreel.reel.tables import TABLES

    counted = reel.sql(f"SELECT {', '.join(f'(SELECT count(*) FROM {name}) AS {name}' for name in TABLES)}")
    _list_tables(TABLES, list(counted.to_pylist()[0].values()), form, "process, ")


def _list_tables(tables: Mapping[str, TableDefinition], counts: list[int], form: str, before: str = "") -> None:
    """`before` are columns that every table has besides."""
    from torchreel.cli.terminal.table import Column

    if form == "json":
        listed = [
            {
                "name": table.name,
                "rows": count,
                "row": table.row,
                "columns": [{"name": c.name, "type": str(c.type), "meaning": c.meaning} for c in table.columns],
            }
            for table, count in zip(tables.values(), counts, strict=True)
        ]
        return write_json({"tables": listed})
    columns = [before + ", ".join(table.names) for table in tables.values()]
    if form == "csv":
        return write_csv(["table", "rows", "columns"], zip(tables, counts, columns, strict=True))
    if form == "table":
        columns = ["\n".join(textwrap.wrap(text, _COLUMNS_WIDTH)) for text in columns]
    rows = Column("Rows", [f"{count:,}" for count in counts], number=True)
    return _draw([Column("Table", list(tables)), rows, Column("Columns", columns)], form)


def _print_rows(table: pa.Table, form: str) -> None:
    from torchreel.cli.terminal.table import Column

    names = _distinct(table.column_names)
    values = [_values(name, column) for name, column in zip(names, table.columns, strict=True)]
    if form == "json":
        rows = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
        return write_json({"columns": names, "rows": rows})
    if form == "csv":
        return write_csv(names, zip(*values, strict=True))
    if not names:
        return None
    columns = [
        Column(name, [_cell(value) for value in cells], number=all(_is_number(value) for value in cells))
        for name, cells in zip(names, values, strict=True)
    ]
    return _draw(columns, form)


def _values(name: str, column: pa.ChunkedArray) -> list[Any]:
    try:
        return [plain(value) for value in column.to_pylist()]
    except (OverflowError, ValueError, KeyError) as error:  # a date without end, a time zone that is not known here
        raise QueryError(
            f"The column {name} has a value that cannot be shown ({error}): cast it, as in x::VARCHAR."
        ) from None


def _draw(columns: list[Column], form: str) -> None:
    from torchreel.cli.terminal.table import console, draw

    if form == "markdown":
        write_markdown(columns)
    else:
        draw(columns, console())


def _distinct(names: list[str]) -> list[str]:
    """The names, with a number after one that was there before: a JSON object has each key once."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return result


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
