"""A reel that was made of a trace -> the trace again, in Kineto's own form: it can be imported to the same tables.

Nothing is moved so that a viewer can draw it: a slice stays on its thread or stream, at its times, and devices and
streams have their numbers, also where those are the numbers of others. What a viewer cannot draw, it could not draw
before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from torchreel.export.output import Progress
from torchreel.export.texts import Details, TextColumn, json_text, quoted
from torchreel.export.timeline.kineto import (
    ACTIVITIES,
    TRI_MONTH_NS,
    argument,
    category,
    device_index,
    kernel_arguments,
    split_args,
)
from torchreel.export.timeline.lines import TEXT, Part, bytes_of, digits, joined, microseconds
from torchreel.reel import Reel
from torchreel.reel.query import connect, unreadable

_BATCH_ROWS = 16_384
_TABLES = (
    *("ops", "kernels", "flows", "marks", "allocs", "processes", "threads", "devices", "streams"),
    *("device_ranges", "syncs", "kernel_counters", "samples"),
)
# What meta.json says of the file itself, and what is written anew.
_OF_THE_FILE = ("file", "kind", "size", "sha256", "baseTimeNanoseconds", "traceName", "traceEvents")
_DEVICE_TYPES = {"cpu": 0, "cuda": 1, "xpu": 12, "hpu": 15, "mtia": 19, "privateuseone": 20}
_HIP = 6
# A thread of a forward call that the trace does not have: only that there was one is known.
_UNKNOWN_THREAD = "1000000"
_ENGINE = "autograd::engine::evaluate_function"  # what this calls is a backward node, and it is itself in backward
_API_KINDS = pa.array(["runtime", "driver", "overhead"], TEXT)
_PYTHON_KINDS = pa.array(["python", "module"], TEXT)
_KNOWN_FLOWS = ("async", "async_gpu", "async_cpu_to_gpu", "ac2g", "fwdbwd")

# A call of a device's API has the number of its kernels; one that waits refer to gets one that no kernel has.
_CORRELATIONS = """
CREATE TEMP TABLE correlations AS
WITH launches AS (
    SELECT launch AS id, min(correlation) AS number FROM kernels WHERE launch IS NOT NULL GROUP BY launch
),
waits AS (SELECT launch AS id FROM syncs UNION SELECT wait_on_launch FROM syncs),
above AS (SELECT greatest(coalesce(max(correlation), 0), 0) + 1 AS number FROM kernels)
SELECT id, number FROM launches WHERE number IS NOT NULL
UNION ALL SELECT w.id, above.number + w.id FROM waits w, above
WHERE w.id IS NOT NULL AND w.id NOT IN (SELECT id FROM launches WHERE number IS NOT NULL)
"""
# An operator is named by its id; a call of the API has the number of the operator or range around it, a Python call
# that of the Python call around it.
_OPS = """
WITH RECURSIVE up AS (
    SELECT id, parent, kind IN ('python', 'module') AS python FROM ops
    WHERE parent IS NOT NULL AND kind IN ('runtime', 'driver', 'python', 'module')
    UNION ALL
    SELECT up.id, o.parent, up.python FROM up JOIN ops o ON o.id = up.parent
    WHERE o.parent IS NOT NULL AND up.python <> (o.kind IN ('python', 'module'))
),
holders AS (
    SELECT up.id, up.parent AS holder FROM up JOIN ops o ON o.id = up.parent
    WHERE up.python = (o.kind IN ('python', 'module'))
)
SELECT o.*, c.number AS correlation, h.holder, t.torch_id AS forward_torch_id
FROM ops o LEFT JOIN correlations c ON c.id = o.id LEFT JOIN holders h ON h.id = o.id
LEFT JOIN threads t ON t.id = o.fwd_thread
ORDER BY o.id
"""
_ALLOCS = "SELECT a.*, d.api FROM allocs a LEFT JOIN devices d ON d.device = a.device ORDER BY a.id"
_SYNCS = """
SELECT s.*, l.number AS correlation, e.number AS event_correlation FROM syncs s
LEFT JOIN correlations l ON l.id = s.launch LEFT JOIN correlations e ON e.id = s.wait_on_launch
ORDER BY s.start_ns, s.dur_ns DESC
"""
# Of several backward calls, one inside the other, that have the same forward call, the outermost gets the arrow.
_BACKWARD = """
SELECT f.id AS key, f.thread, f.start_ns, true AS out FROM ops f WHERE f.id IN (SELECT fwd FROM ops)
UNION ALL
SELECT b.fwd, b.thread, b.start_ns, false FROM ops b LEFT JOIN ops p ON p.id = b.parent
WHERE b.fwd IS NOT NULL AND p.fwd IS DISTINCT FROM b.fwd
ORDER BY key, out DESC, start_ns
"""
_LAUNCHES = """
SELECT k.id AS key, o.thread, o.start_ns, k.start_ns AS kernel_ns, k.device, k.stream
FROM kernels k JOIN ops o ON o.id = k.launch ORDER BY k.id
"""


def is_imported_trace(reel: Reel) -> bool:
    """Whether the reel is that of one trace: then it can be written as it was."""
    source = reel.meta.get("source")
    return isinstance(source, dict) and source.get("kind") == "trace" and len(reel.parts) == 1


def write_imported(reel: Reel, file: BinaryIO, name: str, progress: Progress) -> None:
    """Write the trace of a reel that was made of one."""
    with closing(connect(reel, _TABLES)) as connection:
        _Writer(reel, connection, file).write(name, progress)


class _Writer:
    def __init__(self, reel: Reel, connection: duckdb.DuckDBPyConnection, file: BinaryIO) -> None:
        self._reel = reel
        self._connection = connection
        self._file = file
        self._comma = b""
        connection.execute(_CORRELATIONS)
        (self._process,) = reel.process_rows()
        self._pid = self._process["pid"] if self._process["pid"] is not None else 1
        self._base = (self._process["start_ns"] or 0) // TRI_MONTH_NS * TRI_MONTH_NS
        threads = reel.table("threads").to_pylist()
        self._threads = threads
        tids = {row["id"]: row["os_id"] if row["os_id"] is not None else quoted(row["name"] or "") for row in threads}
        # What belongs to no thread, such as the profiler's own cost, stands in a process of its own.
        nobody = {row["id"] for row in threads if row["os_id"] == 0 and row["name"] is None}
        self._places = TextColumn(lambda id: f'{-1 if id in nobody else self._pid}, "tid": {tids.get(id, 0)}')
        self._names = TextColumn(quoted)
        self._indices = TextColumn(lambda device: str(device_index(device)))
        self._categories = TextColumn(category)

    def write(self, name: str, progress: Progress) -> None:
        self._file.write(self._head().encode())
        self._metadata()
        self._ops(progress)
        for write in (self._kernels, self._device_ranges, self._syncs, self._counters, self._samples):
            write()
        for write in (self._allocs, self._marks, self._flows, self._arrows, self._span):
            write()
        self._file.write(f'\n  ],\n  "traceName": {quoted(name)}\n}}\n'.encode())

    def _rows(self, query: str) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._connection.sql(query).to_arrow_reader(_BATCH_ROWS)
        except (duckdb.Error, pa.ArrowException) as error:
            raise unreadable(self._reel, _TABLES, error) from None

    def _head(self) -> str:
        source = self._reel.meta["source"]
        fields = {"schemaVersion": 1, **{key: value for key, value in source.items() if key not in _OF_THE_FILE}}
        if self._process["rank"] is not None and not isinstance(fields.get("distributedInfo"), dict):
            fields["distributedInfo"] = {key: self._process[key] for key in ("rank", "world_size")}
        fields |= {"displayTimeUnit": "ms", "baseTimeNanoseconds": self._base}
        lines = ",\n".join(f"  {quoted(key)}: {json_text(value)}" for key, value in fields.items())
        return f'{{\n{lines},\n  "traceEvents": [\n'

    # Lines

    def _event(self, **fields: str) -> None:
        """One event; the values are JSON already."""
        text = ", ".join(f'"{name}": {value}' for name, value in fields.items())
        self._file.write(self._comma + b"{" + text.encode() + b"}")
        self._comma = b",\n"

    def _lines(self, *parts: Part) -> None:
        """An event per row, after the comma that the one before it needs."""
        lines = joined([",\n", *parts])
        content = bytes_of(lines)
        self._file.write(content if self._comma else content.slice(2))
        self._comma = b",\n"

    def _since_base(self, times: pa.Array) -> list[pa.Array]:
        return _signed_microseconds(pc.subtract(times, self._base))

    def _time(self, time: int) -> str:
        whole, rest = divmod(time - self._base, 1000)
        return f"{whole}.{rest:03}"

    # Names

    def _metadata(self) -> None:
        def said(pid: object, tid: object, kind: str, key: str, value: str) -> None:
            place = {"pid": str(pid), "tid": str(tid), "ts": self._time(self._process["start_ns"] or self._base)}
            self._event(ph='"M"', name=f'"{kind}"', **place, args=f'{{"{key}": {quoted(value)}}}')

        if self._process["command"] is not None:
            said(self._pid, 0, "process_name", "name", self._process["command"])
        said(self._pid, 0, "process_labels", "labels", "CPU")
        for row in self._threads:
            if row["name"] is not None and row["os_id"] is not None:
                said(self._pid, row["os_id"], "thread_name", "name", f"thread {row['os_id']} ({row['name']})")
        for row in self._reel.table("devices").to_pylist():
            word, _, index = row["device"].partition(":")
            if index and int(index) != self._pid:
                label = "GPU" if word == "cuda" else word.upper()
                said(index, 0, "process_labels", "labels", f"{label} {index}")
        for row in self._reel.table("streams").to_pylist():
            if row["name"] is not None:
                said(device_index(row["device"]), row["stream"], "thread_name", "name", row["name"])

    # Calls

    def _ops(self, progress: Progress) -> None:
        details = Details(self._reel, self._process["process"])
        args = _OpArgs(details)
        total = self._reel.table("ops", ["id"]).num_rows
        done = 0
        for batch in self._rows(_OPS):
            own, rest = split_args(batch.column("args"))
            self._lines(
                '{"ph": "X", "cat": "',
                pc.coalesce(own, self._categories(batch.column("kind"))),
                '", "name": ',
                self._names(batch.column("name")),
                ', "pid": ',
                self._places(batch.column("thread")),
                ', "ts": ',
                *self._since_base(batch.column("start_ns")),
                ', "dur": ',
                *_signed_microseconds(batch.column("dur_ns")),
                ', "args": {"Ev Idx": ',
                digits(batch.column("id")),
                *args(batch),
                joined([", ", rest], optional=True),
                "}}",
            )
            done += batch.num_rows
            progress(done, total)

    def _arrows(self) -> None:
        for batch in self._rows(_BACKWARD):
            phase = pc.if_else(batch.column("out"), pa.scalar('"s"', TEXT), pa.scalar('"f", "bp": "e"', TEXT))
            self._arrow(batch, phase, batch.column("start_ns"), [self._places(batch.column("thread"))], "fwdbwd")
        for batch in self._rows(_LAUNCHES):
            streams = pc.coalesce(digits(batch.column("stream")), pa.scalar('""', TEXT))
            there = [self._indices(batch.column("device")), ', "tid": ', streams]
            self._arrow(batch, '"s"', batch.column("start_ns"), [self._places(batch.column("thread"))], "ac2g")
            self._arrow(batch, '"f", "bp": "e"', batch.column("kernel_ns"), there, "ac2g")

    def _arrow(self, batch: pa.RecordBatch, phase: Part, times: pa.Array, place: list[Part], name: str) -> None:
        parts: list[Part] = ['{"ph": ', phase, ', "id": ', digits(batch.column("key")), ', "pid": ', *place]
        self._lines(*parts, ', "ts": ', *self._since_base(times), f', "cat": "{name}", "name": "{name}"}}')

    def _flows(self) -> None:
        kinds = TextColumn(lambda name: quoted("flow" if name in _KNOWN_FLOWS else name))
        for batch in self._rows("SELECT * FROM flows ORDER BY time_ns, id"):
            out = pc.equal(batch.column("end").cast(TEXT), "out")
            self._lines(
                '{"ph": "',
                pc.if_else(out, pa.scalar("s", TEXT), pa.scalar("f", TEXT)),
                '", "id": ',
                digits(batch.column("id")),
                ', "pid": ',
                self._places(batch.column("thread")),
                ', "ts": ',
                *self._since_base(batch.column("time_ns")),
                ', "cat": ',
                kinds(batch.column("name")),
                ', "name": ',
                self._names(batch.column("name")),
                "}",
            )

    # Devices

    def _on_stream(self, batch: pa.RecordBatch, kind: Part, name: str, args: list[Part], all_streams: str) -> None:
        """Slices on the streams of devices."""
        stream = digits(batch.column("stream"))
        device = self._indices(batch.column("device"))
        self._lines(
            '{"ph": "X", "cat": "',
            kind,
            '", "name": ',
            self._names(batch.column(name)),
            ', "pid": ',
            device,
            ', "tid": ',
            pc.coalesce(stream, pa.scalar(all_streams, TEXT)),
            ', "ts": ',
            *self._since_base(batch.column("start_ns")),
            ', "dur": ',
            *_signed_microseconds(batch.column("dur_ns")),
            ', "args": {"device": ',
            device,
            joined([', "stream": ', stream], optional=True),
            *args,
            "}}",
        )

    def _kernels(self) -> None:
        kinds = TextColumn(lambda kind: ACTIVITIES.get(kind, "kernel"))
        for batch in self._rows("SELECT * FROM kernels ORDER BY id"):
            own, rest = split_args(batch.column("args"))
            args: list[Part] = [*kernel_arguments(batch)]
            args.append(argument("External id", pc.add(batch.column("op"), 1)))
            args.append(joined([", ", rest], optional=True))
            self._on_stream(batch, pc.coalesce(own, kinds(batch.column("kind"))), "name", args, '"no stream"')

    def _device_ranges(self) -> None:
        for batch in self._rows("SELECT * FROM device_ranges ORDER BY start_ns, dur_ns DESC"):
            args: list[Part] = [argument("External id", pc.add(batch.column("op"), 1))]
            self._on_stream(batch, "gpu_user_annotation", "name", args, '"no stream"')

    def _syncs(self) -> None:
        kinds = TextColumn(
            lambda device: {"mtia": "mtia_ccp_events", "xpu": "xpu_sync"}.get(device.partition(":")[0], "cuda_sync")
        )
        names = {"correlation": "correlation", "wait_on_stream": "wait_on_stream"}
        names |= {"wait_on_cuda_event_id": "wait_on_event", "wait_on_cuda_event_record_corr_id": "event_correlation"}
        for batch in self._rows(_SYNCS):
            args: list[Part] = [argument(name, batch.column(column)) for name, column in names.items()]
            self._on_stream(batch, kinds(batch.column("device")), "kind", args, "-1")

    def _counters(self) -> None:
        """The counters of a range are in one event, in the order in which the reel has them."""
        values: dict[str, str] = {}
        before: tuple[Any, ...] | None = None
        for row in self._reel.table("kernel_counters").to_pylist():
            place = (row["range"], row["start_ns"], row["dur_ns"])
            if before is not None and (place != before or row["name"] in values):
                self._counter(before, values)
                values = {}
            before = place
            values[row["name"]] = json_text(row["value"])
        if before is not None:
            self._counter(before, values)

    def _counter(self, place: tuple[Any, ...], values: dict[str, str]) -> None:
        name, start, duration = place
        args = ", ".join(f"{quoted(key)}: {value}" for key, value in values.items())
        where = {"pid": "0", "tid": "0", "ts": self._time(start), "dur": f"{duration // 1000}.{duration % 1000:03}"}
        self._event(ph='"X"', cat='"cuda_profiler_range"', name=quoted(name), **where, args=f"{{{args}}}")

    def _samples(self) -> None:
        for row in self._reel.table("samples").to_pylist():
            pid = self._pid if row["device"] is None else device_index(row["device"])
            where = {"pid": str(pid), "tid": "0", "ts": self._time(row["time_ns"])}
            self._event(ph='"C"', name=quoted(row["name"]), **where, args=f'{{"value": {json_text(row["value"])}}}')

    # Moments

    def _instants(self, batch: pa.RecordBatch, names: pa.Array, args: list[Part]) -> None:
        self._lines(
            '{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": ',
            names,
            ', "pid": ',
            self._places(batch.column("thread")),
            ', "ts": ',
            *self._since_base(batch.column("time_ns")),
            ', "args": {"finished": false',
            *args,
            "}}",
        )

    def _allocs(self) -> None:
        details = Details(self._reel, self._process["process"])
        stacks = TextColumn(lambda id: quoted(";".join(details.frames(id))))
        places = TextColumn(_memory_place)
        for batch in self._rows(_ALLOCS):
            free = pc.equal(batch.column("action").cast(TEXT), "free")
            size = batch.column("size")
            oom = pc.equal(batch.column("action").cast(TEXT), "oom")
            names = pc.if_else(oom, pa.scalar('"[OutOfMemory]"', TEXT), pa.scalar('"[memory]"', TEXT))
            where = joined([batch.column("device").cast(TEXT), " ", batch.column("api").cast(TEXT)])
            args = [
                argument("Total Reserved", batch.column("reserved")),
                argument("Total Allocated", batch.column("total")),
                argument("Bytes", pc.if_else(free, pc.negate(size), size)),
                argument("Addr", batch.column("addr")),
                places(where),
                joined([', "Call stack": ', stacks(batch.column("stack"))], optional=True),
            ]
            self._instants(batch, names, args)

    def _marks(self) -> None:
        for batch in self._rows("SELECT * FROM marks ORDER BY time_ns"):
            self._instants(batch, self._names(batch.column("name")), [])

    def _span(self) -> None:
        """What Kineto says of the whole: when it began and ended."""
        start, end = self._process["start_ns"], self._process["end_ns"]
        if start is None or end is None:
            return
        count = self._reel.table("ops", ["id"]).num_rows
        where = {"pid": '"Spans"', "tid": '"PyTorch Profiler"', "ts": self._time(start)}
        duration = f"{(end - start) // 1000}.{(end - start) % 1000:03}"
        about = {"name": '"PyTorch Profiler (0)"', **where, "dur": duration, "args": f'{{"Op count": {count}}}'}
        self._event(ph='"X"', cat='"Trace"', **about)


class _OpArgs:
    """What the columns of an op say, under Kineto's names."""

    def __init__(self, details: Details) -> None:
        self._inputs = TextColumn(lambda id: "".join(f", {quoted(n)}: {t}" for n, t in details.inputs(id).items()))
        self._stacks = TextColumn(lambda id: quoted(";".join(details.frames(id))))
        self._texts = TextColumn(quoted)

    def __call__(self, batch: pa.RecordBatch) -> list[Part]:
        kind = batch.column("kind").cast(TEXT)
        api, python = pc.is_in(kind, _API_KINDS), pc.is_in(kind, _PYTHON_KINDS)
        plain = pc.invert(pc.or_(api, python))
        zero = pa.scalar("0", TEXT)
        own, holder = digits(pc.add(batch.column("id"), 1)), pc.add(batch.column("holder"), 1)
        caller = pc.coalesce(digits(holder), pa.scalar("null", TEXT))
        ids: list[Part] = [', "External id": ', own, ', "Record function id": ']
        numbers = joined([*ids, pc.coalesce(digits(batch.column("record_id")), zero)])
        engine = pc.starts_with(batch.column("name").cast(TEXT), _ENGINE)
        backward = pc.or_(pc.or_(pc.equal(kind, "backward"), engine), pc.is_valid(batch.column("fwd")))
        thread = pc.coalesce(digits(batch.column("forward_torch_id")), pa.scalar(_UNKNOWN_THREAD, TEXT))
        forward = pc.if_else(backward, thread, zero)
        some = pc.or_(backward, pc.is_valid(batch.column("seq")))
        return [
            pc.if_else(plain, numbers, None),
            argument("External id", pc.if_else(api, holder, None)),
            argument("correlation", pc.if_else(api, batch.column("correlation"), None)),
            pc.if_else(python, joined([', "Python id": ', own, ', "Python parent id": ', caller]), None),
            self._inputs(batch.column("inputs")),
            argument("Sequence number", batch.column("seq")),
            joined([', "Fwd thread id": ', pc.if_else(pc.and_(some, plain), forward, None)], optional=True),
            joined([', "Call stack": ', pc.if_else(python, None, self._stacks(batch.column("stack")))], optional=True),
            joined([', "Module Hierarchy": ', self._texts(batch.column("script_modules"))], optional=True),
            argument("FLOPs", batch.column("flops")),
            pc.if_else(batch.column("open"), pa.scalar(', "finished": false', TEXT), None),
        ]


def _signed_microseconds(nanoseconds: pa.Array) -> list[pa.Array]:
    """Also of times before the base, and of durations that a trace has as negative."""
    sign = pc.if_else(pc.less(nanoseconds, 0), pa.scalar("-", TEXT), pa.scalar("", TEXT))
    return [sign, *microseconds(pc.abs(nanoseconds))]


def _memory_place(place: str) -> str:
    """The device of a memory event, given its name and API."""
    device, api = place.split(" ", 1)
    word = device.partition(":")[0]
    number = _HIP if api == "hip" and word == "cuda" else _DEVICE_TYPES.get(word, word.removeprefix("type"))
    return f', "Device Id": {device_index(device)}, "Device Type": {number}'
