"""Tables of a reel in memory: all of them, with columns and ids that can be changed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from torchreel.ingest.device_join.open_calls import NONE, numbers
from torchreel.reel.tables import TABLES
from torchreel.reel.write import conform

Tables = dict[str, pa.Table]


def complete(tables: Mapping[str, pa.Table]) -> Tables:
    """All tables of a reel, those that are not there without rows."""
    return {
        name: conform(definition, tables[name]).unify_dictionaries().combine_chunks()
        if name in tables
        else definition.schema.empty_table()
        for name, definition in TABLES.items()
    }


def shifted(column: pa.ChunkedArray, by: int) -> np.ndarray:
    values = numbers(column)
    return np.where(values != NONE, values + by, NONE)


def with_column(table: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    """The table with other numbers in one column; -1 becomes null."""
    place = table.schema.get_field_index(name)
    column = pa.array(values, mask=values == NONE).cast(table.schema.field(place).type)
    return table.set_column(place, table.schema.field(place), column)


def concat(name: str, *tables: pa.Table) -> pa.Table:
    return pa.concat_tables([conform(TABLES[name], table) for table in tables]).unify_dictionaries().combine_chunks()


def merged_devices(host: pa.Table, device: pa.Table) -> pa.Table:
    """One row per device, with what either half knows of it."""
    rows = {row["device"]: row for row in host.to_pylist()}
    for row in device.to_pylist():
        known = rows.setdefault(row["device"], row)
        known.update({key: value for key, value in row.items() if known[key] is None})
    return pa.Table.from_pylist(list(rows.values()), schema=TABLES["devices"].schema)


def first_free(table: pa.Table) -> int:
    """The number after the last id."""
    return int(max(numbers(table["id"]), default=-1)) + 1
