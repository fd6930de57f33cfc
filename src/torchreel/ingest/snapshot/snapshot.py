"""A memory snapshot, as torch.cuda.memory._snapshot gives it since torch 2.0 -> the tables of one process of a reel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel._collector import collector_paused
from torchreel.errors import CorruptSnapshotError, NotASnapshotError, first_line
from torchreel.ingest.rows import Budget, Rows, WrongValueError, as_list, shown, whole, wrong
from torchreel.ingest.snapshot.devices import names_of, read_devices
from torchreel.ingest.snapshot.document import read_document
from torchreel.ingest.snapshot.events import LAST_TIME, TracedEvents, read_events
from torchreel.ingest.snapshot.settings import read_settings
from torchreel.ingest.snapshot.stacks import Stacks
from torchreel.ingest.snapshot.state import MAX_DEVICES, State, read_state
from torchreel.reel.tables import TABLES
from torchreel.reel.write import conform

# The name of the one process in the reel of a snapshot.
PROCESS = "snapshot"

_STAGES = ("START", "END")
# A row takes more bytes than these in any file; a few more are allowed to small ones.
_ROW_BYTES = 8
_FREE_ROWS = 10_000
_UNLIMITED = 2**62


def read_snapshot(path: str | os.PathLike[str]) -> dict[str, pa.Table]:
    """The tables of a snapshot file, a pickle or JSON. Nothing in the file can execute anything."""
    path = Path(path)
    with collector_paused():
        document = read_document(path)
        return _tables(document.value, str(path), _rows(_FREE_ROWS + document.size // _ROW_BYTES))


def tables_of(snapshot: object) -> dict[str, pa.Table]:
    """The tables of a snapshot in memory: the dictionary of torch.cuda.memory._snapshot, or its list of segments."""
    with collector_paused():
        return _tables(snapshot, "The snapshot", _rows(_UNLIMITED))


def _rows(limit: int) -> Budget:
    return Budget(limit, "rows")


def _tables(value: object, name: str, budget: Budget) -> dict[str, pa.Table]:
    snapshot = _checked(value, name)
    try:
        tables = _read(snapshot, budget)
        return {key: conform(TABLES[key], table) for key, table in tables.items()}
    except WrongValueError as error:
        raise CorruptSnapshotError(f"{name} cannot be used: {error}. Dump the snapshot again.") from None
    except (pa.ArrowException, OverflowError) as error:
        raise CorruptSnapshotError(
            f"{name} cannot be used ({first_line(error, 200)}): dump the snapshot again."
        ) from None


def _checked(value: object, name: str) -> dict[str, Any]:
    """The dictionary of a snapshot; a list of segments, which torch.cuda.memory_snapshot gives, becomes one."""
    if type(value) is list and all(type(item) is dict and "blocks" in item for item in value):
        return {"segments": value}
    if type(value) is dict and ("segments" in value or "device_traces" in value):
        return value
    if type(value) is dict:
        keys = ", ".join(shown(key) for key in list(value)[:4])
        what = f"it is a dictionary with the keys {keys}" if keys else "it is an empty dictionary"
    elif type(value) is list:
        what = "it is a list of other things than segments"
    else:
        what = f"it is {shown(value)}"
    raise NotASnapshotError(
        f"{name} is not a memory snapshot: {what}. Give what torch.cuda.memory._dump_snapshot wrote."
    )


def _read(snapshot: dict[str, Any], budget: Budget) -> dict[str, pa.Table]:
    stacks = Stacks()
    state = read_state(as_list(_or_empty(snapshot, "segments"), "segments"), stacks, budget)
    traces = as_list(_or_empty(snapshot, "device_traces"), "device_traces")
    history = read_events(traces, stacks, state.allocated(), budget)
    notes = as_list(_or_empty(snapshot, "external_annotations"), "external_annotations")
    budget.spend(len(notes))
    annotations, annotated = _annotations(notes)
    used = [*range(history.devices), *state.segment_device.tolist(), *annotated.tolist()]
    devices = read_devices(snapshot, used)
    state.blocks["alloc"] = _makers(state, history)
    return {
        "allocs": pa.table({"device": names_of(devices, history.device), **history.allocs}),
        "segments": pa.table({"device": names_of(devices, state.segment_device), **state.segments}),
        "blocks": pa.table({"device": names_of(devices, state.block_device), **state.blocks}),
        "annotations": pa.table({"device": names_of(devices, annotated), **annotations}),
        "devices": devices,
        "settings": read_settings(snapshot.get("allocator_settings")),
        **stacks.tables(),
        "processes": _process(snapshot, history, annotations, devices),
    }


def _or_empty(snapshot: dict[str, Any], key: str) -> Any:
    return () if snapshot.get(key) is None else snapshot[key]


def _annotations(values: Any) -> tuple[dict[str, pa.Array], Any]:
    rows = Rows(values, lambda index: f"external_annotations[{index}]")
    device = rows.integers("device", "the number of a device", high=MAX_DEVICES - 1, required=False)
    columns = {
        "time_ns": rows.integers("time_us", "a time in microseconds", high=LAST_TIME, required=False, scale=1000),
        "name": rows.texts("name"),
        "stage": rows.texts("stage", _STAGES),
    }
    return columns, device.fill_null(0).to_numpy()


def _makers(state: State, history: TracedEvents) -> pa.Array:
    """For each block that is not free, the event that made it, if the history goes back so far."""
    keys = zip(state.block_device.tolist(), state.blocks["address"].to_pylist(), strict=True)
    ids = np.fromiter((history.live.get(key, -1) for key in keys), np.int64, len(state.block_device))
    free = np.array([text == "inactive" for text in state.blocks["state"].dictionary.to_pylist()] or [False])
    return pa.array(ids, mask=(ids < 0) | free[state.blocks["state"].indices.to_numpy()])


def _process(
    snapshot: dict[str, Any], history: TracedEvents, annotations: dict[str, pa.Array], devices: pa.Table
) -> pa.Table:
    version = snapshot.get("torch_version")
    if version is not None and type(version) is not str:
        wrong("torch_version", version, "a text")
    times = pa.chunked_array([history.allocs["time_ns"], annotations["time_ns"]], pa.int64()).drop_null().to_numpy()
    lost = [count for count in devices["lost_events"].to_pylist() if count is not None]
    row = {
        "name": PROCESS,
        "torch_version": None if version is None else whole(version),
        "start_ns": int(times.min()) if len(times) else None,
        "end_ns": int(times.max()) if len(times) else None,
        "complete": True,
        "lost_events": min(sum(lost), 2**63 - 1) if lost else None,
    }
    definition = TABLES["processes"]
    return pa.Table.from_pylist([{key: row.get(key) for key in definition.names}], schema=definition.schema)
