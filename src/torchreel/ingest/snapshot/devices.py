"""The devices of a snapshot -> the table devices. PyTorch only counts them; torchreel's own snapshots say more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.ingest.rows import as_list, whole, wrong

_INT64 = 2**63 - 1


def read_devices(snapshot: dict[str, Any], used: Iterable[int]) -> pa.Table:
    """One row for each device that the snapshot has something of, by its number."""
    indices = sorted(set(used))
    names = _listed(snapshot, "devices", _is_name, "the name of a device")
    rows: list[dict[str, Any]] = [
        {"device": whole(names.get(index) or f"cuda:{index}"), "index": index} for index in indices
    ]
    taken: dict[str, int] = {}
    for row in rows:
        other = taken.setdefault(row["device"], row["index"])
        if other != row["index"]:
            wrong(f"devices[{row['index']}]", row["device"], f"a name of its own: devices[{other}] has it")
    for key, column, valid, expected in (
        ("device_total_memory", "total", _is_count, "a number of bytes"),
        ("memory_fraction", "fraction", _is_fraction, "a part between 0 and 1"),
        ("lost_events", "lost_events", _is_count, "a number of events"),
        ("notes", "note", _is_note, "a text of at most 65,536 characters"),
    ):
        values = _listed(snapshot, key, valid, expected)
        for row in rows:
            value = values.get(row["index"])
            row[column] = whole(value) if isinstance(value, str) else value
    schema = pa.schema(
        [
            *(("device", pa.string()), ("index", pa.int32()), ("total", pa.int64()), ("fraction", pa.float64())),
            *(("lost_events", pa.int64()), ("note", pa.string())),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def names_of(devices: pa.Table, numbers: Any) -> pa.DictionaryArray:
    """A column of the names of devices, of their numbers."""
    indices = devices["index"].to_numpy()
    return pa.DictionaryArray.from_arrays(
        pa.array(np.searchsorted(indices, numbers).astype(np.int32)), devices["device"].combine_chunks()
    )


def _listed(snapshot: dict[str, Any], key: str, valid: Callable[[Any], bool], expected: str) -> dict[int, Any]:
    """The values of a list with one item for each device; None says that there is none."""
    if snapshot.get(key) is None:
        return {}
    values = as_list(snapshot[key], key)
    for index, value in enumerate(values):
        if value is not None and not valid(value):
            wrong(f"{key}[{index}]", value, expected)
    return {index: value for index, value in enumerate(values) if value is not None}


def _is_name(value: Any) -> bool:
    return type(value) is str and 0 < len(value) <= 1000


def _is_note(value: Any) -> bool:
    return type(value) is str and len(value) <= 65_536


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _INT64


def _is_fraction(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1
