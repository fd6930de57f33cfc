"""Lines: how long the device worked for each line of the source, forward, backward and recomputed apart.

A kernel belongs to the innermost line of the user's own around its launch, else of a library, else of torch: over all
lines `self_device_ns` adds up to the time of all kernels, with a row for those that have no stack. `device_ns` is the
time of all kernels that have the line anywhere in their stack; `forward_ns`, `backward_ns` and `recompute_ns` are its
parts. Kernels of backward have the stack of their forward call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.model.phases import PHASES, kernel_phases
from torchreel.analyze.gpu.model.run import DeviceRun, device_runs
from torchreel.analyze.source.frames import LIBRARY, NATIVE, TORCH, USER, Frame
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints

NO_STACK = "(no stack)"
NO_STACKS = "No stack was recorded: give torch.profiler with_stack=True, or record with --stacks."
OWNERS = {USER: "user", LIBRARY: "library", TORCH: "torch", NATIVE: "native"}

_SCHEMA = pa.schema(
    [
        ("file", pa.string()),  # null for kernels without a stack
        ("line", pa.int32()),
        ("function", pa.string()),
        ("owner", pa.string()),  # user, library, torch (with Python's own library) or native
        ("kernels", pa.int64()),
        ("self_device_ns", pa.int64()),
        ("device_ns", pa.int64()),
        ("forward_ns", pa.int64()),
        ("backward_ns", pa.int64()),
        ("recompute_ns", pa.int64()),
    ]
)
_NONE = Frame("", 0, NO_STACK, NATIVE)


def line_device_time(reel: Reel, step: int | None = None, device: str | None = None) -> pa.Table:
    """A row per line that the device worked for, those with most of their own first."""
    own: dict[Frame, Any] = {}
    total: dict[Frame, Any] = {}
    for run in device_runs(reel):
        for frames, count, sums in _by_stack(run, run.kernels.where(device, step)):
            mine = own.setdefault(_innermost(frames), np.zeros(2, np.int64))
            mine += (count, sums.sum())
            for frame in set(frames):
                all_of_it = total.setdefault(frame, np.zeros(len(PHASES), np.int64))
                all_of_it += sums
    nothing = np.zeros(2, np.int64)
    rows = [_row(frame, own.get(frame, nothing), sums) for frame, sums in total.items()]
    rows.sort(key=lambda row: (-row[5], -row[6], row[0] or "", row[1] or 0, row[2]))
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    return pa.table([pa.array(list(column), kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)], _SCHEMA)


def _row(frame: Frame, own: Any, sums: Any) -> tuple[Any, ...]:
    place = (
        (None, None, NO_STACK, None) if frame is _NONE else (frame.file, frame.line, frame.function, OWNERS[frame.kind])
    )
    return (*place, *own.tolist(), int(sums.sum()), *sums.tolist())


def _by_stack(run: DeviceRun, chosen: Ints) -> list[tuple[list[Frame], int, Any]]:
    """For each stack from which kernels were launched its frames, how many kernels, and their time by phase."""
    kernels = run.kernels
    called = np.where(kernels.launch[chosen] >= 0, kernels.launch[chosen], kernels.op[chosen])
    place = run.places(called)
    # Calls of one stack are one, whatever call they are.
    stack = np.append(run.calls.stack, NOTHING)[place]
    _, first, which = np.unique(np.where(stack >= 0, -2 - stack, place), return_index=True, return_inverse=True)
    keys = place[first]
    sums = np.zeros((len(keys), len(PHASES)), np.int64)
    np.add.at(sums, (which, kernel_phases(run)[chosen]), kernels.dur[chosen])
    counts = np.bincount(which, minlength=len(keys))
    return [
        (run.frames(key) or [_NONE], count, values)
        for key, count, values in zip(keys.tolist(), counts.tolist(), sums, strict=True)
    ]


def _innermost(frames: list[Frame]) -> Frame:
    """The line to which a kernel belongs: the innermost of the user's, else of a library, else any."""
    for kind in (USER, LIBRARY, TORCH):
        for frame in frames:
            if frame.kind == kind:
                return frame
    return frames[0]
