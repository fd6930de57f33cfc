"""Replays of graphs: the ops and lines behind kernels that one call launched, found in the recording of the capture.

While a graph is captured, nothing runs: launches stand in the recording without kernels, between the calls that begin
and end the capture. Its j-th launch is the j-th activity of each replay. The capture may be in the same process, in
another one of the same reel (import both files together), or in another reel. All names must agree, else a replay is
left alone, and the notes say why. CUDA's launches do not name their kernels, ROCm's do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel._units import count_text
from torchreel.analyze.connection import reading
from torchreel.analyze.gpu.model import calls as calls_module
from torchreel.analyze.gpu.model.calls import API, calls_of
from torchreel.analyze.gpu.model.kernels import COLUMNS, kernels_of
from torchreel.analyze.gpu.model.run import DeviceRun, device_runs
from torchreel.reel import Reel
from torchreel.reel.columns import Ints, ints

NO_CAPTURE = (
    "The capture of the graph is not in the recording: record it with torch.profiler as well, "
    "and import both files into one reel."
)
_BEGIN = re.compile(r"StreamBeginCapture")
_END = re.compile(r"StreamEndCapture")
_REPLAY = re.compile(r"GraphLaunch")
_LAUNCH = re.compile(r"Launch\w*Kernel|LaunchKernel|Memcpy|Memset")

_SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("kernel", pa.int64()),  # id in kernels
        ("launch", pa.int64()),  # id in ops of the call that replayed the graph
        ("op", pa.string()),  # the operator, else the range, around the captured launch
        ("module", pa.string()),  # path of the module around it
        ("line", pa.string()),
        ("device_ns", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Replays:
    """A row per activity that was attributed, and how many there are of replays in all."""

    rows: pa.Table
    replays: int
    activities: int
    notes: tuple[str, ...]

    @property
    def attributed(self) -> int:
        return int(self.rows.num_rows)


@dataclass(frozen=True)
class _Capture:
    """The launches of one capture in their order, with the names of their kernels, or None."""

    run: DeviceRun
    calls: Ints
    names: tuple[str | None, ...]


def replays(reel: Reel, captures: Sequence[Reel] = ()) -> Replays:
    """Attribute the activities of replays to what was captured, in this reel or in others.

    `rows` has process, kernel, launch, op, module, line, device_ns. None for a reel that replays no graph.
    """
    if not any(True for run in device_runs(reel) for _ in _replayed(run)):
        return Replays(_SCHEMA.empty_table(), 0, 0, ())
    found = [capture for each in (reel, *captures) for capture in _captures(each)]
    rows: list[tuple[int, int, int, str | None, str | None, str | None, int]] = []
    notes: dict[str, None] = {}
    count = activities = 0
    for run in device_runs(reel):
        for launch, kernels in _replayed(run):
            count += 1
            activities += len(kernels)
            capture = _fitting(run, kernels, found)
            if isinstance(capture, str):
                notes[capture] = None
            else:
                rows += _rows(run, launch, kernels, capture)
    if count:
        times = "1 replay" if count == 1 else f"{count:,} replays"
        done = f"{len(rows):,} of {count_text(activities, 'activity')} of {times} of graphs"
        notes = {f"{done} were attributed to captured launches.": None} | notes
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    arrays = [pa.array(list(column), kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)]
    return Replays(pa.table(arrays, schema=_SCHEMA), count, activities, tuple(notes))


def _replayed(run: DeviceRun) -> Iterator[tuple[int, Ints]]:
    """Each call that replayed a graph, with its activities in the order of time."""
    kernels = run.kernels
    replaying = np.append(run.calls.named(_REPLAY.search), False)
    rows = np.flatnonzero(replaying[kernels.launch])
    for launch in np.unique(kernels.launch[rows]).tolist():
        yield launch, rows[kernels.launch[rows] == launch]


def _captures(reel: Reel) -> Iterator[_Capture]:
    with reading(reel, ("ops", "kernels")):
        for part in reel.parts:
            calls = calls_of(reel.rows_of("ops", [part], calls_module.COLUMNS))
            begins = np.flatnonzero(calls.of_kind(API) & calls.named(_BEGIN.search))
            if not len(begins):
                continue
            kernels = kernels_of(reel.rows_of("kernels", [part], COLUMNS), calls)
            run = DeviceRun(reel, part.index, calls, kernels)
            yield from (_capture(run, int(begin)) for begin in begins)


def _capture(run: DeviceRun, begin: int) -> _Capture:
    """What was launched on a thread from the beginning of a capture to its end."""
    calls = run.calls
    here = calls.thread == calls.thread[begin]
    ends = np.flatnonzero(here & calls.named(_END.search) & (calls.start > calls.start[begin]))
    last = calls.start[ends].min() if len(ends) else np.iinfo(np.int64).max
    inside = here & (calls.start > calls.start[begin]) & (calls.start < last)
    launches = np.flatnonzero(inside & calls.of_kind(API) & calls.named(_LAUNCH.search))
    launches = launches[~np.isin(launches, run.kernels.launch)]  # what ran was not captured
    launches = launches[np.argsort(calls.start[launches], kind="stable")]
    table = run.rows("ops", ["id", "args"])
    texts = dict(zip(ints(table, "id").tolist(), table["args"].to_pylist(), strict=True))
    names = tuple(_kernel(calls.text(row), texts.get(int(calls.id[row]))) for row in launches.tolist())
    return _Capture(run, launches, names)


def _kernel(call: str, args: str | None) -> str | None:
    """The name of the kernel that a call launches, as far as it says: of a copy or set, its own name."""
    if "Memcpy" in call or "Memset" in call:
        return call
    try:
        name = json.loads(args or "{}").get("kernel")
    except (ValueError, AttributeError):
        return None
    return name if isinstance(name, str) else None


def _fitting(run: DeviceRun, kernels: Ints, captures: list[_Capture]) -> _Capture | str:
    """The capture whose launches these are, or why there is none."""
    if not captures:
        return NO_CAPTURE
    same = [capture for capture in captures if len(capture.calls) == len(kernels)]
    if not same:
        sizes = ", ".join(sorted({f"{len(capture.calls):,}" for capture in captures}))
        return f"A replay of {len(kernels):,} activities fits no capture: those at hand have {sizes} launches."
    if all(None in capture.names for capture in same):
        return "The launches of the capture do not name their kernels, so that nothing shows whether they fit."
    problem = ""
    for capture in same:
        wrong = _first_difference(run, kernels, capture)
        if wrong is None:
            return capture
        ran, launched = run.kernels.text(int(kernels[wrong]))[:80], (capture.names[wrong] or "")[:80]
        problem = problem or (
            f"A replay of {len(kernels):,} activities fits no capture: activity {wrong + 1} is {ran!r}, "
            f"the captured launch {launched!r}."
        )
    return problem


def _first_difference(run: DeviceRun, kernels: Ints, capture: _Capture) -> int | None:
    for number, (kernel, name) in enumerate(zip(kernels.tolist(), capture.names, strict=True)):
        kind = run.kernels.kind_of(kernel)
        copied = kind == "copy" and "Memcpy" in (name or "")
        filled = kind == "set" and "Memset" in (name or "")
        if not copied and not filled and run.kernels.text(kernel) != name:
            return number
    return None


def _rows(
    run: DeviceRun, launch: int, kernels: Ints, capture: _Capture
) -> list[tuple[int, int, int, str | None, str | None, str | None, int]]:
    table = capture.run.rows("modules", ["id", "path"])
    modules = dict(zip(ints(table, "id").tolist(), table["path"].to_pylist(), strict=True))
    return [
        (
            run.process,
            int(run.kernels.id[kernel]),
            int(run.calls.id[launch]),
            capture.run.operator_name(call),
            modules.get(int(capture.run.calls.module[call])),
            capture.run.line(call),
            int(run.kernels.end[kernel] - run.kernels.start[kernel]),
        )
        for kernel, call in zip(kernels.tolist(), capture.calls.tolist(), strict=True)
    ]
