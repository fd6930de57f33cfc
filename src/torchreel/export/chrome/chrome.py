"""Reel -> Chrome trace JSON as PyTorch's Kineto writes it, for Perfetto, chrome://tracing, HTA and all that read those.

A batch of rows becomes a batch of lines inside Arrow, column by column: there is no Python object per op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from torchreel.export.chrome.imported import is_imported_trace, write_imported
from torchreel.export.output import Progress, Target, name_of, writing
from torchreel.export.texts import Details, TextColumn, json_text, quoted
from torchreel.export.timeline.kineto import (
    ACTIVITIES,
    KERNEL_ARGUMENTS,
    KINDS,
    TRI_MONTH_NS,
    OpArgs,
    category,
    device_args,
    device_index,
    header,
    kernel_arguments,
    kernel_category,
    split_args,
)
from torchreel.export.timeline.lines import TEXT, Part, bytes_of, digits, joined, microseconds
from torchreel.export.timeline.timeline import Timeline, runs
from torchreel.export.timeline.tracks import ProcessTrack, Track
from torchreel.reel import Reel

# Blocks older than the recording all have its first moment: here they stand before it, one nanosecond apart.
_MEMORY = """
SELECT coalesce(thread, {home}) AS owner, '[memory]' AS name, device, addr, stack, coalesce(total, 0) AS total,
    coalesce(reserved, 0) AS reserved,
    coalesce(CASE WHEN action = 'free' THEN -size ELSE size END, 0) AS bytes,
    CASE WHEN action = 'preexisting' THEN time_ns - row_number() OVER (PARTITION BY thread, action ORDER BY id DESC)
        ELSE time_ns END AS time_ns
FROM own_allocs {which} ORDER BY owner, time_ns, id
"""
_MARKS = """
SELECT coalesce(thread, {home}) AS owner, name, time_ns FROM own_marks ORDER BY owner, time_ns
"""
# The drop-in for torch.profiler records its steps as ranges: then there is nothing to add.
_STEPS = """
SELECT 'ProfilerStep#' || step AS name, start_ns, greatest(end_ns - start_ns, 1) AS dur_ns FROM own_steps
WHERE 'ProfilerStep#' || step NOT IN
    (SELECT name FROM own_ops WHERE kind = 'range' AND name LIKE 'ProfilerStep#%')
ORDER BY step
"""

# Where Kineto puts the row of the whole among the processes.
_SPANS_ORDER = 536870912
# A reader that adds begin and duration as doubles is off by a nanosecond: so much later the end of the window is.
_AFTER_ALL_NS = 1000


@dataclass(frozen=True)
class TraceOptions:
    """What a trace shows. The drop-in for torch.profiler has other wishes than a reel of one's own."""

    categories: frozenset[str] | None = None
    """Kineto's categories of events that are written; None for all."""
    steps: bool = True
    """Steps that are no ranges get a row of their own."""
    overload_names: bool = False
    """An op is named with its overload: aten::add.Tensor."""
    backward_arrows: bool = True
    """Arrows from forward to backward calls."""
    old_blocks: bool = True
    """Memory that was there before the recording, so that a counter of all events is right."""
    values: bool = True
    """Values of arguments that are lists of numbers."""
    moved: pa.Table | None = None
    """Ops that are shown at another time: `id`, `start_ns`, `dur_ns`."""
    python_name: Callable[[str], str] | None = None
    """How a Python function is named, given the name that the reel has."""
    module_names: Mapping[int, str] | None = None
    """How calls of modules are named, by the id of the module; None for their paths."""
    module_numbers: Mapping[int, int] | None = None
    """What Kineto calls the id of a module, by our id; None for no such argument."""

    def shows(self, category: str) -> bool:
        return self.categories is None or category in self.categories


def write(reel: Reel, target: Target, progress: Progress) -> None:
    """Write the whole reel as one Chrome trace. One that was made of a trace becomes that trace again."""
    if is_imported_trace(reel):
        with writing(target) as file:
            write_imported(reel, file, name_of(target), progress)
        return
    write_trace(reel, target, TraceOptions(), progress)


def write_trace(
    reel: Reel, target: Target, options: TraceOptions, progress: Progress = lambda done, total: None
) -> None:
    """Write what the options say of the reel as one Chrome trace. A path that ends in `.gz` is compressed."""
    with Timeline(reel, options.moved) as timeline, writing(target) as file:
        _Writer(timeline, file, options).write(name_of(target), progress)


class _Writer:
    """Writes events one per line; only the last has no comma after it."""

    def __init__(self, timeline: Timeline, file: BinaryIO, options: TraceOptions) -> None:
        self._timeline = timeline
        self._options = options
        self._file = file
        self._first = timeline.first_ns()
        self._base = self._first // TRI_MONTH_NS * TRI_MONTH_NS
        self._events = 0
        self._named: set[Track] = set()
        self._names = TextColumn(quoted)
        self._python_names = TextColumn(lambda name: quoted((options.python_name or str)(name)))
        self._module_names = TextColumn(lambda id: quoted((options.module_names or {}).get(id, "nn.Module")))
        self._module_numbers = TextColumn(lambda id: str((options.module_numbers or {}).get(id, -1)))
        self._categories = TextColumn(category)
        self._kernel_categories = TextColumn(kernel_category)
        self._activities = TextColumn(ACTIVITIES.get)
        self._devices = TextColumn(device_args)
        self._device_indices = TextColumn(lambda device: str(device_index(device)))

    def write(self, name: str, progress: Progress) -> None:
        timeline = self._timeline
        total, done = timeline.count("ops"), 0
        self._file.write(header(timeline, self._base).encode())
        for process in [*timeline.processes, *timeline.devices]:
            self._name_process(process)
        self._name_tracks(timeline.tracks())
        for process in timeline.processes:
            timeline.focus(process)
            details = Details(timeline.reel, process.index, values=self._options.values)
            args = OpArgs(timeline, process, details)
            for track, batch in timeline.slices("ops", process, args.columns):
                done += batch.num_rows
                self._ops(track, batch, args)
                progress(done, total)
            self._events += timeline.next_id(process)
            self._kernels(process)
            for source in ("device_ranges", "syncs"):
                self._beside_kernels(process, source)
            self._samples(process)
            self._arrows(process)
            if self._options.shows("cpu_instant_event"):
                self._memory(process, details)
                self._instants(process, _MARKS, lambda batch: [])
            if self._options.steps:
                self._steps(process)
        self._name_tracks(timeline.tracks())
        self._end(name, total)

    def _event(self, fields: dict[str, Any], end: str = ",\n") -> None:
        parts = [f'"{name}": {_json(value)}' for name, value in fields.items()]
        self._file.write(("{" + ", ".join(parts) + "}" + end).encode())

    def _lines(self, *parts: Part) -> None:
        self._file.write(bytes_of(joined(parts)))

    def _since_base(self, times: pa.Array) -> list[pa.Array]:
        return microseconds(pc.max_element_wise(pc.subtract(times, self._base), 0))

    def _indices(self, count: int) -> pa.Array:
        """Kineto's running number of an event. Ops have their ids, those of another process those that follow."""
        self._events += count
        return digits(pa.array(np.arange(self._events - count, self._events)))

    def _name_process(self, process: ProcessTrack) -> None:
        values = {"name": process.name, "labels": process.label, "sort_index": process.pid}
        for name, value in values.items():
            where = {"ts": _Microseconds(self._first - self._base), "pid": process.pid, "tid": 0}
            self._event({"ph": "M", "name": f"process_{name}", **where, "args": {name: value}})

    def _name_tracks(self, tracks: Iterable[Track]) -> None:
        for track in tracks:
            if track in self._named:
                continue
            self._named.add(track)
            for name, value in {"name": track.name, "sort_index": track.order}.items():
                where = {"ts": _Microseconds(self._first - self._base), "pid": track.process.pid, "tid": track.tid}
                self._event({"ph": "M", "name": f"thread_{name}", **where, "args": {name: value}})

    def _ops(self, track: Track, batch: pa.RecordBatch, args: OpArgs) -> None:
        if self._options.categories is not None:
            kinds = [kind for kind in KINDS if self._options.shows(category(kind))]
            batch = batch.filter(pc.is_in(batch.column("kind"), pa.array(kinds, pa.string())))
        if batch.num_rows:
            indices = digits(pc.add(batch.column("id"), self._events))
            names = self._op_names(batch)
            shown = [*args(track, batch), *self._module_ids(batch)]
            self._slices(track, batch, self._categories(batch.column("kind")), shown, names, indices)

    def _module_ids(self, batch: pa.RecordBatch) -> list[Part]:
        if self._options.module_numbers is None:
            return []
        is_module = pc.equal(batch.column("kind"), "module")
        numbers = pc.if_else(is_module, self._module_numbers(batch.column("module")), None)
        return [joined([', "Python module id": ', numbers], optional=True)]

    def _op_names(self, batch: pa.RecordBatch) -> pa.Array:
        name = batch.column("name").cast(TEXT)
        if self._options.overload_names:
            overload = pc.fill_null(batch.column("overload").cast(TEXT), "")
            name = pc.if_else(pc.equal(overload, ""), name, joined([name, ".", overload]))
        names = self._names(name)
        if self._options.python_name is not None:
            names = pc.if_else(pc.equal(batch.column("kind"), "python"), self._python_names(name), names)
        if self._options.module_names is not None:
            is_module = pc.equal(batch.column("kind"), "module")
            names = pc.if_else(is_module, self._module_names(batch.column("module")), names)
        return names

    def _slices(
        self,
        track: Track,
        batch: pa.RecordBatch,
        categories: pa.Array,
        args: list[Part],
        names: pa.Array | None = None,
        indices: pa.Array | None = None,
    ) -> None:
        self._lines(
            '{"ph": "X", "cat": "',
            categories,
            '", "name": ',
            self._names(batch.column("name")) if names is None else names,
            f', "pid": {track.process.pid}, "tid": {track.tid}, "ts": ',
            *self._since_base(batch.column("start_ns")),
            ', "dur": ',
            *microseconds(batch.column("dur_ns")),
            ', "args": {',
            *args,
            ', "Ev Idx": ',
            self._indices(batch.num_rows) if indices is None else indices,
            "}},\n",
        )

    def _kernels(self, process: ProcessTrack) -> None:
        columns = ["name", "op", "device", "stream", "activity", *KERNEL_ARGUMENTS.values(), "grid", "block", "args"]
        for track, batch in self._timeline.slices("kernels", process, columns):
            own, rest = split_args(batch.column("args"))
            by_name = self._kernel_categories(batch.column("name"))
            by_kind = self._activities(batch.column("activity"))
            args = [
                '"External id": ',
                pc.coalesce(digits(pc.add(batch.column("op"), 1)), pa.scalar("0", TEXT)),
                *self._place(batch),
                *kernel_arguments(batch),
                joined([", ", rest], optional=True),
            ]
            self._slices(track, batch, pc.coalesce(own, by_kind, by_name), args)

    def _place(self, batch: pa.RecordBatch) -> list[Part]:
        return [
            ', "device": ',
            self._device_indices(batch.column("device")),
            ', "stream": ',
            pc.coalesce(digits(batch.column("stream")), pa.scalar("-1", TEXT)),
        ]

    def _beside_kernels(self, process: ProcessTrack, source: str) -> None:
        """Ranges as devices saw them, and waits."""
        link, kind = {"device_ranges": ("op", "gpu_user_annotation"), "syncs": ("launch", "cuda_sync")}[source]
        for track, batch in self._timeline.slices(source, process, ["name", link, "device", "stream"]):
            number = pc.coalesce(digits(pc.add(batch.column(link), 1)), pa.scalar("0", TEXT))
            categories = pa.array([kind] * batch.num_rows, TEXT)
            self._slices(track, batch, categories, ['"External id": ', number, *self._place(batch)])

    def _samples(self, process: ProcessTrack) -> None:
        """Counters over time, each on its device or on the process."""
        pids = {device.device: device.pid for device in self._timeline.devices if device.index == process.index}
        places = TextColumn(lambda device: str(pids.get(device, process.pid)))
        for batch in self._timeline.rows(
            "SELECT time_ns, coalesce(device, '') AS device, name, value FROM own_samples"
        ):
            self._lines(
                '{"ph": "C", "name": ',
                self._names(batch.column("name")),
                ', "pid": ',
                places(batch.column("device")),
                ', "tid": 0, "ts": ',
                *self._since_base(batch.column("time_ns")),
                ', "args": {"value": ',
                digits(batch.column("value")),
                "}},\n",
            )

    def _arrows(self, process: ProcessTrack) -> None:
        if not self._options.shows("cpu_op"):
            return
        begin, end = pa.scalar('{"ph": "s"', TEXT), pa.scalar('{"ph": "f", "bp": "e"', TEXT)
        for source in ("ops", "kernels"):
            for track, batch in self._timeline.arrow_ends(source, process):
                if not self._options.backward_arrows:
                    batch = batch.filter(pc.not_equal(batch.column("name"), "fwdbwd"))
                name = self._names(batch.column("name"))
                self._lines(
                    pc.if_else(batch.column("out"), begin, end),
                    ', "id": ',
                    digits(batch.column("arrow")),
                    f', "pid": {track.process.pid}, "tid": {track.tid}, "ts": ',
                    *self._since_base(batch.column("start_ns")),
                    ', "cat": ',
                    name,
                    ', "name": ',
                    name,
                    "},\n",
                )

    def _memory(self, process: ProcessTrack, details: Details) -> None:
        stacks = TextColumn(lambda id: quoted(";".join(details.frames(id))))

        def args(batch: pa.RecordBatch) -> list[Part]:
            return [
                '"Total Reserved": ',
                digits(batch.column("reserved")),
                ', "Total Allocated": ',
                digits(batch.column("total")),
                ', "Bytes": ',
                digits(batch.column("bytes")),
                ', "Addr": ',
                digits(batch.column("addr")),
                ", ",
                self._devices(batch.column("device")),
                joined([', "Call stack": ', stacks(batch.column("stack"))], optional=True),
                ', "finished": false, ',
            ]

        which = "" if self._options.old_blocks else "WHERE action <> 'preexisting'"
        self._instants(process, _MEMORY.replace("{which}", which), args)

    def _instants(self, process: ProcessTrack, query: str, args: Callable[[pa.RecordBatch], list[Part]]) -> None:
        """Instants on their threads; two of them at one moment are moved apart.

        Perfetto stacks instants of one moment into one another, and drops those past the 512th.
        """
        last: dict[int, int] = {}
        for whole in self._timeline.rows(query.format(home=self._timeline.home(process))):
            for owner, batch in runs(whole, "owner"):
                track = self._timeline.thread(process, owner)
                times = _apart(batch.column("time_ns").to_numpy(), last.get(owner))
                last[owner] = int(times[-1])
                self._lines(
                    '{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": ',
                    self._names(batch.column("name")),
                    f', "pid": {track.process.pid}, "tid": {track.tid}, "ts": ',
                    *self._since_base(pa.array(times)),
                    ', "args": {',
                    *args(batch),
                    '"Ev Idx": ',
                    self._indices(batch.num_rows),
                    "}},\n",
                )

    def _steps(self, process: ProcessTrack) -> None:
        track: Track | None = None
        for batch in self._timeline.rows(_STEPS):
            if track is None:
                track = self._timeline.spare(process, "steps")
                self._name_tracks([track])
            categories = pa.array(["user_annotation"] * batch.num_rows, TEXT)
            self._slices(track, batch, categories, ['"External id": 0'])

    def _end(self, name: str, op_count: int) -> None:
        """What Kineto ends with: the span of the whole, and its two ends."""
        begin = _Microseconds(self._first - self._base)
        duration = self._timeline.last_ns() - self._first
        end = _Microseconds(self._first - self._base + duration + _AFTER_ALL_NS)
        span = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler"}
        self._event({**span, "ts": begin, "dur": _Microseconds(duration), "args": {"Op count": op_count}})
        sort = {"ph": "M", "name": "process_sort_index", "ts": begin, "pid": "Spans", "tid": 0}
        self._event({**sort, "args": {"sort_index": _SPANS_ORDER}})
        instant = {"ph": "i", "s": "g"}
        start = {"name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "Trace PyTorch Profiler"}
        self._event({**instant, **start, "ts": begin})
        self._event({**instant, "name": "Record Window End", "pid": "", "tid": "", "ts": end}, end="\n")
        self._file.write(f'  ],\n  "traceName": {quoted(name)}\n}}\n'.encode())


class _Microseconds(int):
    """Nanoseconds that are to be written as microseconds."""


def _json(value: Any) -> str:
    if isinstance(value, _Microseconds):
        return f"{value // 1000}.{value % 1000:03}"
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}": {_json(item)}' for name, item in value.items()) + "}"
    return json_text(value)


def _apart(times: np.ndarray, last: int | None) -> np.ndarray:
    """The times, sorted already, with each at least a nanosecond after the one before it."""
    steps = np.arange(len(times))
    earliest = times - steps
    if last is not None:
        earliest = np.maximum(earliest, last + 1)
    return np.maximum.accumulate(earliest) + steps
