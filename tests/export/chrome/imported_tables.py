"""The tables of a reel without the numbers by which rows refer to each other: what they name stands in their place."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torchreel.reel import Reel
from torchreel.reel.tables import TABLES

Row = tuple[Any, ...]

# Columns that hold ids, and the tables of those.
_REFERENCES = {
    "ops": {"parent": "ops", "thread": "threads", "fwd_thread": "threads", "fwd": "ops", "module": "modules"}
    | {"stack": "stacks", "inputs": "inputs", "end_thread": "threads"},
    "marks": {"thread": "threads", "op": "ops"},
    "allocs": {"thread": "threads", "op": "ops", "stack": "stacks", "alloc": "allocs"},
    "stacks": {},
    "modules": {"parent": "modules"},
    "kernels": {"op": "ops", "launch": "ops", "collective": "collectives", "module": "modules"},
    "device_ranges": {"op": "ops"},
    "syncs": {"launch": "ops", "wait_on_launch": "ops"},
    "collectives": {"group": "process_groups", "op": "ops", "kernel": "kernels"},
    "flows": {"thread": "threads", "op": "ops"},
}
# Of a row that another one names: what tells it from others.
_KEYS = {
    "ops": ("name", "kind", "start_ns", "dur_ns", "seq", "depth", "args"),
    "threads": ("os_id", "name"),
    "allocs": ("time_ns", "device", "addr", "size", "action"),
    "kernels": ("name", "start_ns", "dur_ns", "device", "stream"),
    "collectives": ("name", "enter_ns", "seq"),
}
_OWN_NUMBERS = ("id",)


def canonical(reel: Reel) -> dict[str, Counter[Row]]:
    """The rows of each table, and how often each is there; of frames those that a stack names."""
    tables = {name: reel.table(name).drop_columns("process").to_pylist() for name in TABLES}
    frames = {row["id"]: (row["file"], row["line"], row["function"]) for row in tables["frames"]}
    for row in tables["stacks"]:
        row["frames"] = tuple(frames[id] for id in row["frames"])
    used = {frame for row in tables["stacks"] for frame in row["frames"]}
    tables["frames"] = [row for row in tables["frames"] if frames[row["id"]] in used]
    named = {name: {row["id"]: _key(name, row) for row in tables[name]} for name in _named()}
    return {name: Counter(_row(name, row, named) for row in rows) for name, rows in tables.items()}


def _named() -> set[str]:
    return {target for targets in _REFERENCES.values() for target in targets.values()}


def _key(table: str, row: dict[str, Any]) -> Row:
    columns = _KEYS.get(table) or tuple(name for name in row if name not in ("id", "parent"))
    return tuple(_plain(row[name]) for name in columns)


def _row(table: str, row: dict[str, Any], named: dict[str, dict[int, Row]]) -> Row:
    references = _REFERENCES.get(table, {})
    return tuple(
        named[references[column]][value] if column in references and value is not None else _plain(value)
        for column, value in row.items()
        if column not in _OWN_NUMBERS
    )


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
