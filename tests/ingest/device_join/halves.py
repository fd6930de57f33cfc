"""Two halves of a run, made by hand: what our recorder saw, and what a trace of the devices says."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from torchreel.ingest.device_join.clock import CLOCK_RANGE
from torchreel.reel.tables import TABLES

Rows = list[dict[str, Any]]


def tables(**rows: Rows) -> dict[str, pa.Table]:
    """Tables of rows that name only the columns that matter."""
    return {name: pa.Table.from_pylist(found, schema=TABLES[name].schema) for name, found in rows.items()}


def call(id: int, name: str, start: int, end: int, **fields: Any) -> dict[str, Any]:
    """A row of ops."""
    row = {"id": id, "name": name, "start_ns": start, "dur_ns": end - start, "self_ns": end - start}
    return {"kind": "op", "thread": 0, "depth": 0, **row, **fields}


def mark(id: int, number: int, start: int, end: int) -> dict[str, Any]:
    """A range that was opened for the clocks."""
    return call(id, f"{CLOCK_RANGE}{number}", start, end, kind="range")
