"""Kineto's conventions: what the head of a trace says, the categories, and the arguments of an op."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from torchreel.export.texts import Details, TextColumn, json_text, object_text, quoted
from torchreel.export.timeline.lines import TEXT, Part, digits, joined
from torchreel.export.timeline.timeline import Timeline
from torchreel.export.timeline.tracks import ProcessTrack, Track

# Kineto counts from the beginning of a "tri-month", so that the files of different ranks share a base.
TRI_MONTH_NS = 7_889_238 * 10**9

_PYTHON = ("python", "module")
KINDS = (
    *("op", "backward", "torchscript", "lite", "custom", "static_runtime"),
    *("range", "module", "python", "backend", "other", "runtime", "driver", "overhead"),
)
# Calls of a device's API, and what the profiler itself cost.
_OF_DEVICES = {"runtime": "cuda_runtime", "driver": "cuda_driver", "overhead": "overhead"}
_DEVICE_TYPES = {"cpu": 0, "cuda": 1}
# Names at the top of a trace by which viewers read it: what a program adds there cannot take their place.
_RESERVED = ("schemaVersion", "deviceProperties", "displayTimeUnit", "baseTimeNanoseconds", "traceEvents", "traceName")


def category(kind: str) -> str:
    """The category of an op of this kind."""
    if kind == "range":
        return "user_annotation"
    return "python_function" if kind in _PYTHON else _OF_DEVICES.get(kind, "cpu_op")


def kernel_category(name: str) -> str:
    """The category of a device's activity of this name."""
    if name.startswith("Memcpy"):
        return "gpu_memcpy"
    return "gpu_memset" if name.startswith("Memset") else "kernel"


def device_index(device: str) -> int:
    """0 of cuda:0; -1 of a device that has no index, such as the CPU."""
    index = device.partition(":")[2]
    return int(index) if index.isdigit() else -1


def device_args(device: str) -> str:
    """The device of a memory event."""
    return f'"Device Id": {device_index(device)}, "Device Type": {_DEVICE_TYPES.get(device.partition(":")[0], 20)}'


def header(timeline: Timeline, base_ns: int) -> str:
    """The top of the file, up to and with the bracket that opens the events."""
    processes = timeline.reel.process_rows()
    identity = json.dumps([timeline.reel.path.name, processes], default=str)
    fields: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "trace_id": uuid.uuid5(uuid.NAMESPACE_OID, identity).hex.upper(),
    }
    tables = {"with_stack": "stacks", "profile_memory": "allocs", "record_shapes": "inputs", "with_modules": "modules"}
    fields |= {flag: 1 for flag, table in tables.items() if timeline.count(table)}
    if timeline.count("ops WHERE flops IS NOT NULL"):
        fields["with_flops"] = 1
    ranked = [row for row in processes if row["rank"] is not None]
    if ranked:
        size = ranked[0]["world_size"]
        world = {"backend": "", "rank": ranked[0]["rank"], "world_size": size, "pg_count": 0, "pg_config": []}
        fields["distributedInfo"] = world
    fields["host_name"] = processes[0]["host"] if processes else ""
    fields |= {"displayTimeUnit": "ms", "baseTimeNanoseconds": base_ns}
    added = timeline.reel.meta.get("metadata", {})
    fields |= {name: value for name, value in added.items() if name not in _RESERVED}
    lines = ",\n".join(f"  {quoted(name)}: {json_text(value)}" for name, value in fields.items())
    return f'{{\n{lines},\n  "traceEvents": [\n'


# The categories of devices' activities, by their kinds.
ACTIVITIES = {"compute": "kernel", "communication": "kernel", "copy": "gpu_memcpy", "set": "gpu_memset"}

# How an importer keeps a category that no kind stands for, as the last argument.
_CATEGORY = r'^(?P<before>.*?)(?:, )?"cat": "(?P<cat>[^"\\]*)"\}$'

# From Kineto's names of a kernel's arguments to our columns.
KERNEL_ARGUMENTS = {
    "context": "context",
    "correlation": "correlation",
    "graph id": "graph",
    "graph node id": "graph_node",
    "registers per thread": "registers",
    "shared memory": "shared_bytes",
    "blocks per SM": "blocks_per_sm",
    "warps per SM": "warps_per_sm",
    "est. achieved occupancy %": "occupancy",
    "bytes": "bytes",
}


def argument(name: str, values: pa.Array, text: Callable[[pa.Array], pa.Array] = digits) -> pa.Array:
    """An argument of the rows that have it."""
    return joined([f', "{name}": ', text(values)], optional=True)


def _shape(lists: pa.Array) -> pa.Array:
    return joined(["[", pc.binary_join(lists.cast(pa.list_(pa.string())), ", ").cast(TEXT), "]"], optional=True)


def split_args(args: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The category that an importer has kept among the arguments, and the other arguments without their braces."""
    texts = TextColumn(object_text)(args.cast(TEXT))
    found = pc.extract_regex(texts, _CATEGORY)
    own = pc.struct_field(found, "cat")
    rest = pc.utf8_slice_codeunits(texts, 1, -1)
    before = pc.utf8_slice_codeunits(pc.struct_field(found, "before"), 1)
    rest = pc.if_else(pc.is_valid(own), before, rest)
    return own, pc.if_else(pc.equal(rest, ""), None, rest)


def kernel_arguments(batch: pa.RecordBatch) -> list[pa.Array]:
    """What the columns of devices' activities say, under Kineto's names; each begins with a comma."""
    numbers = [argument(name, batch.column(column)) for name, column in KERNEL_ARGUMENTS.items()]
    return [*numbers, *(argument(name, batch.column(name), _shape) for name in ("grid", "block"))]


class OpArgs:
    """Writes what Kineto puts under "args", for the ops of one process."""

    def __init__(self, timeline: Timeline, process: ProcessTrack, details: Details) -> None:
        own = [part for part in timeline.reel.parts if part.index == process.index]
        threads = timeline.reel.rows_of("threads", own).to_pylist()
        self._torch_ids = {row["id"]: row["torch_id"] or 0 for row in threads}
        self._details = details
        self._inputs = TextColumn(self._input_text)
        self._stacks = TextColumn(lambda id: quoted(";".join(details.frames(id))))
        self._modules = TextColumn(self._module_text)
        self._script_modules = TextColumn(quoted)
        self._backends = TextColumn(quoted)
        self._forward = TextColumn(lambda thread: str(self._torch_ids.get(thread, 0)))
        self._callers = PythonCallers()
        self.columns = ["name", "overload", "kind", "seq", "fwd_thread", "module", "stack", "inputs", "flops", "open"]
        self.columns += ["backend", "record_id", "script_modules", "args"]
        if timeline.count("own_counters"):
            self.columns.append("counters")

    def __call__(self, track: Track, batch: pa.RecordBatch) -> list[Part]:
        """The parts of each row's arguments, all but the running number."""
        python = pc.is_in(batch.column("kind"), pa.array(_PYTHON))
        zero = pa.scalar("0", TEXT)
        record_ids = pc.coalesce(digits(batch.column("record_id")), zero)
        ids = joined(['"External id": ', digits(pc.add(batch.column("id"), 1)), ', "Record function id": ', record_ids])
        seq = digits(batch.column("seq"))
        forward = pc.coalesce(self._forward(batch.column("fwd_thread")), zero)
        modules = pc.coalesce(
            self._script_modules(batch.column("script_modules")), self._modules(batch.column("module"))
        )
        parts: list[Part] = [
            pc.if_else(python, None, ids),
            self._inputs(batch.column("inputs")),
            joined([', "Sequence number": ', seq, ', "Fwd thread id": ', forward], optional=True),
            joined([', "Call stack": ', self._stacks(batch.column("stack"))], optional=True),
            joined([', "Module Hierarchy": ', modules], optional=True),
            joined([', "FLOPs": ', digits(batch.column("flops"))], optional=True),
            joined([', "Backend": ', self._backends(batch.column("backend"))], optional=True),
            pc.if_else(batch.column("open"), pa.scalar(', "finished": false', TEXT), None),
            joined([", ", split_args(batch.column("args"))[1]], optional=True),
        ]
        if pc.any(python).as_py():
            parts.insert(1, pa.array(self._callers(track, batch, python.to_pylist()), TEXT))
        if "counters" in self.columns:
            parts.append(pa.array([_counters(row) for row in batch.column("counters").to_pylist()], TEXT))
        return parts

    def _input_text(self, id: int) -> str:
        named = {name: json_text(value) for name, value in self._details.keywords(id).items() if _is_plain(name, value)}
        given = {**self._details.inputs(id), **named}
        return "".join(f", {quoted(name)}: {text}" for name, text in given.items())

    def _module_text(self, id: int) -> str | None:
        path = self._details.module(id)
        return None if path is None else quoted(path)


class PythonCallers:
    """Finds, for each Python call, the Python call that made it; what lies between them does not count."""

    def __init__(self) -> None:
        self._track: Track | None = None
        self._open: list[tuple[int, int]] = []

    def __call__(self, track: Track, batch: pa.RecordBatch, python: list[bool]) -> list[str | None]:
        """The identifying arguments of the rows that are Python calls, None for the others."""
        if track is not self._track:
            self._track, self._open = track, []
        columns = [batch.column(name).to_numpy().tolist() for name in ("id", "start_ns", "dur_ns")]
        return [
            self._identify(track, *row) if is_python else None
            for is_python, row in zip(python, zip(*columns, strict=True), strict=True)
        ]

    def _identify(self, track: Track, id: int, start: int, duration: int) -> str:
        while self._open and self._open[-1][0] <= start:
            self._open.pop()
        parent = self._open[-1][1] + 1 if self._open else "null"
        self._open.append((start + duration, id))
        return f'"Python id": {id + 1}, "Python parent id": {parent}, "Python thread": {track.tid}'


def _is_plain(name: str, value: Any) -> bool:
    """Whether Kineto writes a keyword argument: a number, a text or a list of texts; a stream is a number."""
    if name == "stream":
        return type(value) is int
    return isinstance(value, (int, float, str)) or (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    )


def _counters(row: list[dict[str, Any]] | None) -> str | None:
    return "".join(f", {quoted(counter['name'])}: {counter['value']}" for counter in row) if row else None
