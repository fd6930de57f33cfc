"""How many rows a table has, by the end of its file: no row of it is read."""

from __future__ import annotations

from torchreel.reel.files import open_parquet
from torchreel.reel.reel import Process
from torchreel.reel.tables import TableDefinition


def rows_in(process: Process, definition: TableDefinition) -> int:
    """The rows of a table of one process."""
    path = process.file(definition.name)
    if path is None:
        return int(process.table(definition, definition.names[:1]).num_rows)
    with open_parquet(path) as parquet:
        return int(parquet.metadata.num_rows)
