"""The events and ranges of one process, as the entries of a snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torchreel.export.snapshot_devices import Device
from torchreel.export.snapshot_rows import ProcessTables
from torchreel.export.snapshot_stacks import Stacks

_COLUMNS = [
    *("device", "action", "addr", "size", "stream", "time_ns", "compile_context", "metadata", "pool", "stack"),
    *("forward", "category", "device_free"),
]
# What a reel calls by one name and a snapshot by two; a block older than the recording was made by no event of it.
_ACTIONS = {"free": ("free_requested", "free_completed"), "preexisting": ()}
_POOL = re.compile(r"([0-9]{1,20}),([0-9]{1,20})")


def events(process: ProcessTables, devices: dict[str, Device], stacks: Stacks) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each event with the number of its device. One of unknown size says nothing that an entry could hold."""
    categories = _has_categories(process)
    pools: dict[str, tuple[int, int]] = {}
    for row in process.rows("allocs", _COLUMNS):
        device, action, addr, size, stream, time_ns, context, metadata, pool, stack, forward, category, free = row
        if device is None or size is None or action is None or (addr is None and action != "oom"):
            continue
        if category is None and categories and action == "alloc":
            category = "unknown"  # without this word among them, the viewer of torch 2.13 fails
        fields = {
            "addr": addr,
            "device_free": 0 if free is None and action == "oom" else free,
            "size": size,
            "stream": stream or 0,
            "time_us": None if time_ns is None else time_ns // 1000,
            "compile_context": context,
            "user_metadata": metadata,
            "pool_id": None if pool is None else pools.setdefault(pool, pool_id(pool)),
            "frames": stacks.frames(stack),
            "forward_frames": stacks.forward(forward),
            "category": category,
        }
        known = {key: value for key, value in fields.items() if value is not None}
        for name in _ACTIONS.get(action, (action,)):
            yield devices[device].index, {"action": name, **known}


def _has_categories(process: ProcessTables) -> bool:
    column = process.table("allocs", ["category"])["category"]
    return bool(column.null_count < len(column))


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
