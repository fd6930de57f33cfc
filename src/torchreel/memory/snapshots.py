"""Snapshots: the history and the state of memory, in the schema of torch.cuda.memory._snapshot."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

from torchreel import _core
from torchreel._torch import memory as cuda_memory
from torchreel.errors import OptionError, RecorderError

Snapshot = dict[str, Any]
# No CPU pool has it.
_NO_POOL = 2**32


def snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True, *, augment_with_fx_traces: bool = False
) -> Snapshot:
    """The state of memory now, and its history since record_history(), in torch.cuda.memory._snapshot's schema.

    mempool_id              only segments of this pool: that of a graphed function has `segment_pool_id` (0, number)
    include_traces          False: the state alone, without the history and the annotations, which is quicker
    augment_with_fx_traces  frames of code that torch.fx generated carry the node and its original line

    The CPU is the last of its devices. `torch_version`, `devices`, `device_total_memory`, `memory_fraction`,
    `lost_events` and `notes` are torchreel's own keys, the last five with one item per device.
    """
    pool = _pool_number(mempool_id)
    cpu: Snapshot = pickle.loads(_core.snapshot_pickle(torch.__version__, include_traces, pool))
    both = _with_cuda(cpu, mempool_id, include_traces) if torch.cuda.is_available() else cpu
    return _with_fx_nodes(both) if augment_with_fx_traces else both


def dump(path: str | os.PathLike[str], *, augment_with_fx_traces: bool = False) -> None:
    """Write snapshot() to a file: JSON if its name ends in .json, else a pickle of protocol 4."""
    target = Path(path)
    if os.path.isdir(target):  # noqa: PTH112 - Path.is_dir raises for names that are too long
        raise OptionError(f"{target} is a directory: name a file for the snapshot.")
    if target.suffix == ".json":
        content = json.dumps(snapshot(augment_with_fx_traces=augment_with_fx_traces)).encode()
    elif torch.cuda.is_available() or augment_with_fx_traces:
        content = pickle.dumps(snapshot(augment_with_fx_traces=augment_with_fx_traces), protocol=4)
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


def allocation_traceback(address: int) -> list[dict[str, Any]] | None:
    """The frames, the innermost first, that made the living block which begins at an address.

    `tensor.untyped_storage().data_ptr()` is such an address. None if no living block begins there, or nothing is known
    of its stack: it is older than the history, or there is none with context="state" or more.
    """
    if isinstance(address, bool) or not isinstance(address, int) or not 0 <= address < 2**64:
        raise OptionError(f"allocation_traceback takes an address, not {address!r}.")
    frames: list[dict[str, Any]] | None = pickle.loads(_core.traceback_pickle(address))
    if frames is None and torch.cuda.is_available():
        frames = cuda_memory.allocation_traceback(address)
    return frames


def _with_fx_nodes(snapshot: Snapshot) -> Snapshot:
    """The snapshot, whose frames of generated code carry their nodes. Those of which torch kept none are said."""
    lists = [block["frames"] for segment in snapshot["segments"] for block in segment["blocks"]]
    lists += [event["frames"] for events in snapshot["device_traces"] for event in events if "frames" in event]
    if any(frame["filename"].startswith("<eval_with_key>") for frames in lists for frame in frames):
        warnings.warn(
            "Of some code that torch.fx generated there are no nodes in the snapshot: set "
            "torch.fx.experimental._config.enrich_profiler_metadata = True before it is compiled.",
            stacklevel=3,
        )
    cuda_memory.add_fx_stacks(snapshot)  # in place
    return snapshot


def _pool_number(mempool_id: tuple[int, int] | None) -> int | None:
    if mempool_id is None:
        return None
    try:
        first, second = mempool_id
    except (TypeError, ValueError):
        raise OptionError(f"mempool_id={mempool_id!r} is not a pair of numbers, as segment_pool_id is.") from None
    if not isinstance(first, int) or not isinstance(second, int) or second < 0:
        raise OptionError(f"mempool_id={mempool_id!r} is not a pair of numbers, as segment_pool_id is.")
    return second if first == 0 else _NO_POOL


def _with_cuda(cpu: Snapshot, mempool_id: tuple[int, int] | None, include_traces: bool) -> Snapshot:
    """CUDA's snapshot with the CPU as one device more."""
    pool = mempool_id or (0, 0)
    both: Snapshot = cuda_memory.snapshot((pool[0], pool[1]), include_traces)
    index = torch.cuda.device_count()
    traces: list[Any] = both.setdefault("device_traces", [])
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
