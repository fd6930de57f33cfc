"""Reels of a few activities, written by hand: what a test expects can be counted on fingers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import torchreel
from torchreel.reel.meta import write_meta
from torchreel.reel.tables import TABLES, TEXT
from torchreel.reel.write import write_process

START = 1_700_000_000_000_000_000

Rows = dict[str, list[dict[str, Any]]]


def kernel(start: int, end: int, **fields: Any) -> dict[str, Any]:
    """A row of kernels: compute on stream 7 of cuda:0, unless it is said otherwise."""
    return {
        "device": "cuda:0",
        "stream": 7,
        "name": "k",
        "kind": "compute",
        "start_ns": START + start,
        "dur_ns": end - start,
        **fields,
    }


def call(start: int, end: int, name: str = "cudaLaunchKernel", kind: str = "runtime", **fields: Any) -> dict[str, Any]:
    """A row of ops on thread 0; its id is its place in the list."""
    return {
        "name": name,
        "kind": kind,
        "overload": "",
        "thread": 0,
        "start_ns": START + start,
        "dur_ns": end - start,
        "self_ns": end - start,
        "async": False,
        "open": False,
        **fields,
    }


def collective(name: str, start: int, end: int, **fields: Any) -> dict[str, Any]:
    """A row of collectives of group 0."""
    return {
        "group": 0,
        "name": name,
        "enter_ns": START + start,
        "start_ns": START + start,
        "end_ns": START + end,
        "open": False,
        **fields,
    }


def reel_of(path: Path, *processes: Rows) -> torchreel.Reel:
    """Write and open a reel: of each process its tables, in which rows without an id get their place as id."""
    path.mkdir(parents=True)
    for number, tables in enumerate(processes):
        name = f"host-{number}"
        row = {"name": name, "pid": number, "start_ns": START, "end_ns": START + 1000, "complete": True}
        row |= {"lost_events": 0, **(tables.get("processes") or [{}])[0]}
        write_process(
            path / name, {table: _arrow(table, rows) for table, rows in (tables | {"processes": [row]}).items()}
        )
    write_meta(path, {"root": "host-0" if processes else None})
    return torchreel.load(path)


def _arrow(name: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    columns = {}
    numbered = [{"id": number, **row} for number, row in enumerate(rows)]
    for column in TABLES[name].columns:
        kind = pa.string() if column.type == TEXT else column.type
        columns[column.name] = pa.array([row.get(column.name) for row in numbered], kind)
    return pa.table(columns)
