"""Snapshots: the history and the state of memory, in the schema of torch.cuda.memory._snapshot."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import torch

from torchreel import _core
from torchreel.errors import OptionError, RecorderError

Snapshot = dict[str, Any]


def snapshot() -> Snapshot:
    """The state of memory now, and its history since record_history(), in torch.cuda.memory._snapshot's schema.

    The CPU is the last of its devices. `torch_version`, `devices`, `device_total_memory`, `memory_fraction`,
    `lost_events` and `notes` are torchreel's own keys, the last five with one item per device.
    """
    cpu: Snapshot = pickle.loads(_core.snapshot_pickle(torch.__version__))
    return _with_cuda(cpu) if torch.cuda.is_available() else cpu


def dump(path: str | os.PathLike[str]) -> None:
    """Write snapshot() to a file: JSON if its name ends in .json, else a pickle of protocol 4."""
    target = Path(path)
    if os.path.isdir(target):  # noqa: PTH112 - Path.is_dir raises for names that are too long
        raise OptionError(f"{target} is a directory: name a file for the snapshot.")
    if target.suffix == ".json":
        content = json.dumps(snapshot()).encode()
    elif torch.cuda.is_available():
        content = pickle.dumps(snapshot(), protocol=4)
    else:
        content = _core.snapshot_pickle(torch.__version__)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise RecorderError(f"The snapshot cannot be written to {target}: {error.strerror}.") from None


def _with_cuda(cpu: Snapshot) -> Snapshot:
    """CUDA's snapshot with the CPU as one device more."""
    both: Snapshot = torch.cuda.memory._snapshot()
    index = torch.cuda.device_count()
    traces: list[Any] = both["device_traces"]
    traces.extend([] for _ in range(index - len(traces)))
    traces.append(cpu["device_traces"][0])
    for part in ("segments", "external_annotations"):
        for row in cpu[part]:
            row["device"] = index
        both[part] = [*both.get(part, []), *cpu[part]]
    cuda = range(index)
    unknown: list[Any] = [None] * index
    both["torch_version"] = cpu["torch_version"]
    both["devices"] = [f"cuda:{device}" for device in cuda] + cpu["devices"]
    totals = [torch.cuda.get_device_properties(device).total_memory for device in cuda]
    both["device_total_memory"] = totals + cpu["device_total_memory"]
    both["memory_fraction"] = [torch.cuda.get_per_process_memory_fraction(device) for device in cuda] + cpu[
        "memory_fraction"
    ]
    both["lost_events"] = unknown + cpu["lost_events"]
    both["notes"] = unknown + cpu["notes"]
    return both
