"""Reel -> a memory snapshot in the schema of torch.cuda.memory._snapshot (torch 2.13), as a pickle or JSON.

What a reel has no value for is left out, except what the readers of snapshots need. Lists of frames are shared
objects, so that a pickle holds each once.
"""

from __future__ import annotations

import pickle
from typing import Any

from torchreel._collector import collector_paused
from torchreel.export.output import Progress, Target, name_of, writing
from torchreel.export.snapshot.devices import Device, devices_of
from torchreel.export.snapshot.events import events, ranges
from torchreel.export.snapshot.json_text import write_json
from torchreel.export.snapshot.rows import ProcessTables, json_value
from torchreel.export.snapshot.stacks import Stacks
from torchreel.export.snapshot.state import segments
from torchreel.reel import Reel

_PROTOCOL = 4


def write(reel: Reel, target: Target, progress: Progress) -> None:
    """Write the whole reel as one snapshot: JSON if the name ends in .json or .json.gz, else a pickle."""
    as_json = name_of(target).removesuffix(".gz").endswith(".json")
    with writing(target, text=as_json) as file, collector_paused():
        snapshot = snapshot_of(reel)
        if as_json:
            write_json(snapshot, file)
        else:
            pickle.Pickler(file, _PROTOCOL).dump(snapshot)
    count = reel.sql("SELECT count(*) AS n FROM ops")["n"][0].as_py()
    progress(count, count)


def snapshot_of(reel: Reel) -> dict[str, Any]:
    """The reel as the dictionary of a snapshot. Every device of every process is one of its devices."""
    devices = devices_of(reel)
    traces: list[list[dict[str, Any]]] = [[] for _ in range(max((d.index + 1 for d in devices), default=0))]
    snapshot: dict[str, Any] = {
        "segments": [],
        "device_traces": traces,
        "allocator_settings": {},
        "external_annotations": [],
    }
    versions = []
    for part in reel.parts:
        process = ProcessTables(reel, part.index)
        mine = {device.name: device for device in devices if device.process == part.index}
        stacks = Stacks(process)
        snapshot["segments"] += segments(process, mine, stacks)
        for index, event in events(process, mine, stacks):
            traces[index].append(event)
        snapshot["external_annotations"] += ranges(process, mine)
        for name, value in process.rows("settings", ["name", "value"]):
            snapshot["allocator_settings"].setdefault(name, json_value(value, f"the setting {name}", reel))
        versions += [version for (version,) in process.rows("processes", ["torch_version"]) if version is not None]
    return {**snapshot, **_own_keys(devices, versions, len(traces))}


def _own_keys(devices: list[Device], versions: list[str], count: int) -> dict[str, Any]:
    """What torchreel says beyond torch's schema, as far as it is known."""
    own: dict[str, Any] = {"torch_version": versions[0]} if versions else {}
    if any(device.label != f"cuda:{device.index}" for device in devices):
        own["devices"] = [f"cuda:{index}" for index in range(count)]
        for device in devices:
            own["devices"][device.index] = device.label
    for key, values in (
        ("device_total_memory", {device.index: device.total for device in devices}),
        ("memory_fraction", {device.index: device.fraction for device in devices}),
        ("lost_events", {device.index: device.lost_events for device in devices}),
        ("notes", {device.index: device.note for device in devices}),
    ):
        if any(value is not None for value in values.values()):
            own[key] = [values.get(index) for index in range(count)]
    return own
