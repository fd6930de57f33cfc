"""Which calls are of backward: those of kind backward, and all that these called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from torchreel.analyze.source.call_tree import inherited, plain, rows_of

if TYPE_CHECKING:
    import duckdb

_SCHEMA = pa.schema([("process", pa.int32()), ("id", pa.int64())])
_CALLS = """
    SELECT id, parent, CASE WHEN kind = 'backward' THEN 1 ELSE -1 END AS backward FROM ops WHERE process = {process}"""


def processes_of(connection: duckdb.DuckDBPyConnection) -> list[int]:
    """The processes that made calls."""
    return [int(row[0]) for row in connection.sql("SELECT DISTINCT process FROM ops ORDER BY 1").fetchall()]


def mark_backward_calls(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table `backward_calls`: process and id of each."""
    tables = [_of_process(connection, process) for process in processes_of(connection)]
    connection.register("backward_calls", pa.concat_tables([_SCHEMA.empty_table(), *tables]))


def _of_process(connection: duckdb.DuckDBPyConnection, process: int) -> pa.Table:
    found = connection.sql(_CALLS.format(process=process)).fetchnumpy()
    ids, parents, backward = (plain(found[name], -1) for name in ("id", "parent", "backward"))
    if (backward > 0).any():
        backward = inherited(rows_of(ids, parents), backward)
    marked = np.unique(ids[backward > 0])
    return pa.table([np.full(len(marked), process, np.int32), marked], schema=_SCHEMA)
