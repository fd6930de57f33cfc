"""The events and ranges of one process, as the entries of a snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from torchreel.export.snapshot.devices import Device
from torchreel.export.snapshot.rows import ProcessTables, values
from torchreel.export.snapshot.stacks import Stacks

_COLUMNS = [
    *("device", "action", "addr", "size", "stream", "time_ns", "compile_context", "metadata", "pool", "stack"),
    *("forward", "category", "device_free"),
]
# What a reel calls by one name and a snapshot by two; a block older than the recording was made by no event of it.
_ACTIONS = {"free": ("free_requested", "free_completed"), "preexisting": ()}
_POOL = re.compile(r"([0-9]{1,20}),([0-9]{1,20})")


def events(process: ProcessTables, devices: dict[str, Device], stacks: Stacks) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each event with the number of its device. One of unknown size says nothing that an entry could hold."""
    table = process.table("allocs", _COLUMNS)
    columns = _entry_columns(table, stacks)
    rows = zip(*columns.values(), strict=True)
    for device, action, row in zip(values(table["device"]), values(table["action"]), rows, strict=True):
        entry = {key: value for key, value in zip(columns, row, strict=True) if value is not None}
        if action == "oom":
            entry.setdefault("device_free", 0)
        elif "addr" not in entry:
            continue
        if device is None or action is None or "size" not in entry:
            continue
        for name in _ACTIONS.get(action, (action,)):
            yield devices[device].index, {"action": name, **entry}


def _entry_columns(table: pa.Table, stacks: Stacks) -> dict[str, list[Any]]:
    """The values of entries under a snapshot's names, None where there is none; without those that are never there."""
    pools = {text: pool_id(text) for text in table["pool"].unique().to_pylist() if text is not None}
    columns: dict[str, list[Any]] = {
        "addr": values(table["addr"]),
        "device_free": values(table["device_free"]),
        "size": values(table["size"]),
        "stream": values(table["stream"].fill_null(0)),
        "time_us": values(pc.divide(table["time_ns"], 1000)),
        "compile_context": values(table["compile_context"]),
        "user_metadata": values(table["metadata"]),
        "pool_id": [None if text is None else pools[text] for text in values(table["pool"])],
        "frames": [stacks.frames(stack) for stack in values(table["stack"])],
        "forward_frames": [stacks.forward(text) for text in values(table["forward"])],
        "category": _categories(table),
    }
    always = ("size", "stream")
    return {key: column for key, column in columns.items() if key in always or any(v is not None for v in column)}


def _categories(table: pa.Table) -> list[Any]:
    """What blocks are for. If one is known, the others are unknown: without that word torch 2.13's viewer fails."""
    categories = values(table["category"])
    if all(category is None for category in categories):
        return categories
    return [
        "unknown" if category is None and action == "alloc" else category
        for category, action in zip(categories, values(table["action"]), strict=True)
    ]


def pool_id(text: str) -> tuple[int, int]:
    """The id of a memory pool, which is two numbers; of what is none, that of the default pool."""
    match = _POOL.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def ranges(process: ProcessTables, devices: dict[str, Device]) -> list[dict[str, Any]]:
    """The user's ranges: as a snapshot had them, or else as they were recorded among the ops."""
    if not devices:
        return []
    rows = list(process.rows("annotations", ["stage", "name", "device", "time_ns"]))
    if rows:
        return [_annotation(devices, *row) for row in rows]
    device = "cpu" if "cpu" in devices else next(iter(devices))
    recorded = process.reel.sql(
        f"SELECT name, start_ns, dur_ns, open FROM ops WHERE process = {process.index} AND kind = 'range'"
    ).to_pylist()
    # A range of no length begins before it ends.
    moments = [(row["start_ns"], 0, "START", row["name"]) for row in recorded]
    moments += [(row["start_ns"] + row["dur_ns"], 1, "END", row["name"]) for row in recorded if not row["open"]]
    return [_annotation(devices, stage, name, device, time) for time, _, stage, name in sorted(moments)]


def _annotation(devices: dict[str, Device], stage: str, name: str, device: str, time_ns: int | None) -> dict[str, Any]:
    index = devices[device].index if device in devices else next(iter(devices.values())).index
    entry = {"stage": stage, "name": name, "device": index}
    return entry if time_ns is None else {**entry, "time_us": time_ns // 1000}
