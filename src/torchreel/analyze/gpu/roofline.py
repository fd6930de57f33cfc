"""Roofline: how near ops come to what the device can do, and model FLOP utilisation (MFU).

FLOP of an op are those that the reel has, else those of a formula on the shapes of its inputs (model/formulas.py).
Where ops with counts are nested, the outermost has the count, and all kernels that were launched in it are its time: so
FLOP and bytes are shared over the op's kernels by their time.

`bound` says which roof is lower for an op: with few FLOP per byte the memory's, else that of arithmetic; `percent` is
how much of that roof it reaches. Bytes are inputs and outputs, each once: what is still in a cache can exceed the roof.
MFU is FLOP / (time * peak), over all devices of a process; what activation checkpointing runs again does not count as
work of the model, and has a number of its own (HFU has both). Ops without a formula count as none.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.model.calls import distinct
from torchreel.analyze.gpu.model.formulas import NAMES, Work, work_of
from torchreel.analyze.gpu.model.peaks import Peak, peak_of
from torchreel.analyze.gpu.model.phases import RECOMPUTE, call_phases
from torchreel.analyze.gpu.model.run import NO_KERNELS, DeviceRun, device_runs
from torchreel.analyze.source.call_tree import inherited
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints, ints

NO_SHAPES = "No op has FLOP: give torch.profiler record_shapes=True, or record with --shapes and --flops."
_TF32 = re.compile(r"tf32|s1688|xf32", re.IGNORECASE)

_SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("op", pa.string()),
        ("inputs", pa.string()),  # sizes of its tensors
        ("dtype", pa.string()),
        ("calls", pa.int64()),
        ("kernels", pa.int64()),
        ("device_ns", pa.int64()),
        ("flops", pa.int64()),
        ("bytes", pa.int64()),  # null where only the FLOP are known
        ("intensity", pa.float64()),  # FLOP per byte
        ("tflops", pa.float64()),  # achieved, 10**12 FLOP per second
        ("gbps", pa.float64()),  # achieved, 10**9 bytes per second
        ("bound", pa.string()),  # compute or memory; null where the peak is not known
        ("percent", pa.float64()),  # of the lower roof
    ]
)


@dataclass(frozen=True)
class Utilisation:
    """One process: what it computed in the window. `mfu_percent` is None where the peak is not known."""

    process: int
    model: str | None
    devices: int
    window_ns: int
    flops: int
    recompute_flops: int
    mfu_percent: float | None
    hfu_percent: float | None  # with what was run again
    peak_source: str | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Roofline:
    """A row per op and shapes, those with most time first; MFU per process; notes on what is missing."""

    rows: pa.Table
    utilisation: tuple[Utilisation, ...]
    notes: tuple[str, ...]


@dataclass
class _Group:
    calls: int = 0
    flops: int = 0
    bytes: int | None = 0
    kernels: int = 0
    ns: int = 0


def roofline(reel: Reel, peak: Peak | None = None, step: int | None = None) -> Roofline:
    """Of the whole run, or of a step; with a peak of your own (`parse_peak` reads one) for all devices."""
    rows: list[dict[str, Any]] = []
    found: list[Utilisation] = []
    notes: dict[str, None] = {}
    runs = 0
    for run in device_runs(reel):
        runs += 1
        model = _model(run)
        own = peak or peak_of(model)
        if own is None:
            named = f"The device {model!r}" if model else "A device whose model the recording does not name"
            notes[f"{named} has no known peak: give it with --peak, as in --peak 989T,3.35TB."] = None
        groups, totals, uncounted = _groups(run, step)
        if uncounted:
            notes[
                f"{uncounted / 1e6:,.1f} ms of kernels belong to ops that have a formula, but whose shapes or "
                "arguments the recording lacks: they count as no FLOP."
            ] = None
        rows += [_row(run.process, *key, group, own) for key, group in groups.items()]
        found.append(_utilisation(run, model, totals, own, step))
    if not runs:
        notes[NO_KERNELS] = None
    elif not rows:
        notes[NO_SHAPES] = None
    rows.sort(key=lambda row: (row["process"], -row["device_ns"], row["op"], row["inputs"] or ""))
    return Roofline(pa.Table.from_pylist(rows, schema=_SCHEMA), tuple(found), tuple(notes))


def _model(run: DeviceRun) -> str | None:
    table = run.rows("devices", ["device", "model"])
    models = {row["device"]: row["model"] for row in table.to_pylist() if row["model"]}
    used = [run.kernels.devices[number] for number in np.unique(run.kernels.device).tolist() if number >= 0]
    return next((models[device] for device in used if device in models), next(iter(models.values()), None))


_Groups = dict[tuple[str, str | None], _Group]


def _groups(run: DeviceRun, step: int | None) -> tuple[_Groups, dict[tuple[str, bool], int], int]:
    """By op and shapes; the FLOP by dtype, and whether they were run again; the time of what cannot be counted."""
    calls, kernels = run.calls, run.kernels
    counted, works, texts = _counted(run)
    owner = np.append(inherited(calls.above, np.where(counted >= 0, np.arange(len(calls)), NOTHING)), NOTHING)
    chosen = kernels.where(None, step)
    called = np.where(kernels.launch[chosen] >= 0, kernels.launch[chosen], kernels.op[chosen])
    of_kernel = owner[called]
    phases = call_phases(run)
    tf32 = np.array([*(_TF32.search(name) is not None for name in kernels.names), False], bool)[kernels.name]
    groups: dict[tuple[str, str | None], _Group] = {}
    totals: dict[tuple[str, bool], int] = {}
    order = np.argsort(of_kernel, kind="stable")
    order = order[of_kernel[order] >= 0]
    rows, starts = np.unique(of_kernel[order], return_index=True)
    for row, own in zip(rows.tolist(), np.split(chosen[order], starts[1:]), strict=False):  # split gives one of nothing
        work = works[counted[row]]
        if work.dtype == "float32" and tf32[own].any():
            work = Work(work.flops, work.bytes, "tf32")
        group = groups.setdefault((calls.text(row), f"{work.dtype} {texts[counted[row]]}"), _Group())
        group.calls += 1
        group.flops += work.flops
        group.bytes = None if work.bytes is None or group.bytes is None else group.bytes + work.bytes
        group.kernels += len(own)
        group.ns += int(kernels.dur[own].sum())
        key = (work.dtype, bool(phases[row] == RECOMPUTE))
        totals[key] = totals.get(key, 0) + work.flops
    formula = np.append(calls.nearest(calls.named(NAMES.__contains__)), NOTHING)[called]
    return groups, totals, int(kernels.dur[chosen[(of_kernel < 0) & (formula >= 0)]].sum())


def _counted(run: DeviceRun) -> tuple[Ints, list[Work], list[str]]:
    """For each call the number of its work, if it is the outermost that has any; the works, and their shapes."""
    calls = run.calls
    inputs = {row["id"]: row for row in run.rows("inputs").to_pylist()}
    works: list[Work] = []
    texts: list[str] = []
    able = np.flatnonzero(calls.named(NAMES.__contains__) | (calls.flops >= 0))
    keys, which = distinct(calls.name[able], calls.inputs[able], calls.flops[able])
    numbers = np.full(len(keys), NOTHING)
    for place, (name, given, flops) in enumerate(keys.tolist()):
        row = inputs.get(given, {})
        text = calls.names[name] if name >= 0 else ""
        work = work_of(text, row.get("dims"), row.get("dtypes"), row.get("scalars"))
        if flops >= 0 and (work is None or work.flops != flops):
            work = Work(flops, None if work is None else work.bytes, "float32" if work is None else work.dtype)
        if work is not None:
            numbers[place] = len(works)
            works.append(work)
            texts.append(row.get("dims") or "")
    found = np.full(len(calls), NOTHING)
    found[able] = numbers[which]
    # Outermost: no call around it has work.
    has = found >= 0
    around = np.append(inherited(calls.above, np.where(has, np.arange(len(calls)), NOTHING)), NOTHING)[calls.above]
    return np.where(has & ((calls.above < 0) | (around < 0)), found, NOTHING), works, texts


def _row(process: int, op: str, inputs: str | None, group: _Group, peak: Peak | None) -> dict[str, Any]:
    dtype, _, dims = (inputs or "").partition(" ")
    flops, moved = group.flops, group.bytes
    row = {
        "process": process,
        "op": op,
        "inputs": dims,
        "dtype": dtype,
        "calls": group.calls,
        "kernels": group.kernels,
        "device_ns": group.ns,
        "flops": flops,
        "bytes": moved,
        "intensity": flops / moved if moved else None,
        "tflops": flops / group.ns / 1e3 if group.ns else None,
        "gbps": moved / group.ns if moved and group.ns else None,
    }
    return {**row, **_roof(flops, moved, group.ns, peak, dtype)}


def _roof(flops: int, moved: int | None, ns: int, peak: Peak | None, dtype: str) -> dict[str, Any]:
    """Which of the two takes longer at its peak, and how much of the time that would be."""
    most = peak.of(dtype) if peak else None
    if peak is None or most is None or not ns:
        return {"bound": None, "percent": None}
    computing = flops / most
    moving = moved / peak.bytes if moved and peak.bytes else 0.0
    bound = "compute" if computing >= moving else "memory"
    return {"bound": bound, "percent": 100 * max(computing, moving) / (ns / 1e9)}


def _utilisation(
    run: DeviceRun, model: str | None, totals: dict[tuple[str, bool], int], peak: Peak | None, step: int | None
) -> Utilisation:
    window = _window(run, step)
    devices = len(np.unique(run.kernels.device[run.kernels.where(None, step)]))
    seconds = {False: 0.0, True: 0.0}
    known = peak is not None
    for (dtype, again), flops in totals.items():
        most = peak.of(dtype) if peak else None
        known = known and most is not None
        seconds[again] += flops / most if most else 0.0
    share = 100 / (window / 1e9 * devices) if window and devices else 0.0
    return Utilisation(
        process=run.process,
        model=model,
        devices=devices,
        window_ns=window,
        flops=sum(flops for (_, again), flops in totals.items() if not again),
        recompute_flops=sum(flops for (_, again), flops in totals.items() if again),
        mfu_percent=seconds[False] * share if known and totals else None,
        hfu_percent=sum(seconds.values()) * share if known and totals else None,
        peak_source=peak.source if peak else None,
    )


def _window(run: DeviceRun, step: int | None) -> int:
    """The time of the step, else from the beginning of the first step to the end of the last, else of all kernels."""
    steps = run.rows("steps", ["step", "start_ns", "end_ns"])
    chosen = np.flatnonzero((ints(steps, "step") == step) | (step is None))
    if len(chosen):
        return int(ints(steps, "end_ns")[chosen].max() - ints(steps, "start_ns")[chosen].min())
    rows = run.kernels.where(None, step)
    return int(run.kernels.end[rows].max() - run.kernels.start[rows].min()) if len(rows) else 0
