"""Events, chunk by chunk -> columns of numbers: one set for each kind of row that a reel has.

Nothing is linked here: links need all events, because a file has them in no order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from torchreel._decode import Field, JsonRows, chosen, pair_codes
from torchreel.ingest.kineto import categories
from torchreel.ingest.kineto.arguments import Arguments, value_of
from torchreel.ingest.kineto.columns import NOTHING, Codes, Growing, Ints
from torchreel.ingest.kineto.events import Event
from torchreel.ingest.kineto.times import nanoseconds

KINDS = ("op", "backward", "range", "python", "module", "runtime", "driver", "overhead", "other")
KIND = {kind: number for number, kind in enumerate(KINDS)}
ACTIVITIES = ("compute", "communication", "copy", "set", "other")
ACTIVITY = {kind: number for number, kind in enumerate(ACTIVITIES)}

# Categories that a kind has by itself: others are kept with the arguments.
_PLAIN = {"cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver", "overhead"} | {
    *("kernel", "gpu_memcpy", "gpu_memset", "Operator", "Runtime", "Kernel", "Memcpy", "Memset")
}
# Numbers that only name the event, and texts about the whole trace.
_NAMES = ("Ev Idx", "Profiler Event Index", "Trace name", "Trace iteration", "external ts")
_INPUTS = ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")
# Arguments that are whole numbers, by the kind of the event.
_EXTERNAL = ("External id", "external id")
_OF_OPS = (*_EXTERNAL, "Record function id", "Sequence number", "Fwd thread id", "FLOPs", "flops")
_OF_CALLS = {
    **dict.fromkeys(("op", "range"), _OF_OPS),
    **dict.fromkeys(("runtime", "driver"), (*_EXTERNAL, "correlation")),
    "other": (*_OF_OPS, "correlation"),
    "python": (*_EXTERNAL, "Python id", "Python parent id"),
    "overhead": _EXTERNAL,
}
_OF_ACTIVITIES = (
    *(*_EXTERNAL, "device", "stream", "correlation", "context", "graph id", "graph node id"),
    *("registers per thread", "shared memory", "bytes"),
)
_PER_SM = ("blocks per SM", "warps per SM")
_OF_MEMORY = ("Bytes", "Addr", "Total Allocated", "Total Reserved", "Device Type", "Device Id")
_MODULE = "nn.Module: "
_COLLECTIVE = "Collective name"
_OCCUPANCY = "est. achieved occupancy %"  # the first profilers called the same number theoretical

_PHASE, _CATEGORY, _NAME = Field(Event.ph), Field(Event.cat), Field(Event.name)
_PROCESS, _THREAD, _ID = Field(Event.pid), Field(Event.tid), Field(Event.id)
_TS, _DUR, _ARGS = Field(Event.ts), Field(Event.dur), Field(Event.args)

ThreadKey = tuple[int | str | None, int | str | None]


class _PythonArgs(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The arguments of a Python call, of which there are more than of all others."""

    caller: int | None = msgspec.field(default=None, name="Python parent id")
    id: int | None = msgspec.field(default=None, name="Python id")
    module: int | None = msgspec.field(default=None, name="Python module id")
    thread: int | str | None = msgspec.field(default=None, name="Python thread")
    event: int | None = msgspec.field(default=None, name="Ev Idx")
    finished: bool = True


_PYTHON = msgspec.json.Decoder(list[_PythonArgs])
_PYTHON_ID, _PYTHON_CALLER = Field(_PythonArgs.id), Field(_PythonArgs.caller)
_PYTHON_FINISHED = Field(_PythonArgs.finished)


class Threads(Codes):
    """Threads and streams by process and number; "25738" and 25738 are the same."""

    def __missing__(self, key: ThreadKey) -> int:
        plain = (number(key[0]), number(key[1]))
        if plain != key:
            self[key] = code = self[plain]
            return code
        return super().__missing__(key)

    def keys_by_code(self) -> dict[int, ThreadKey]:
        """The key of each number."""
        return {code: (number(key[0]), number(key[1])) for key, code in self.items()}


def number(value: int | str | None) -> int | str | None:
    """A number that is written as text; other values as they are."""
    if type(value) is str and value.isdecimal() and len(value) < 19:
        return int(value)
    return value


class Collected:
    """All events of one file, as columns."""

    def __init__(self) -> None:
        self.events = 0
        self.names = Codes()
        self.threads = Threads()
        self.args = Codes()
        self.inputs = Codes()
        self.stacks = Codes()
        self.scripts = Codes()
        self.shapes = Codes()
        self.flow_ids = JsonRows()
        self.host = Growing(
            *("order", "thread", "name", "kind", "start", "dur", "external", "record", "seq", "forward"),
            *("correlation", "inputs", "stack", "script", "flops", "args", "python", "caller", "open"),
        )
        self.device = Growing(
            *("order", "device", "stream", "name", "kind", "start", "dur", "external", "correlation", "context"),
            *("graph", "graph_node", "grid", "block", "registers", "shared_bytes", "blocks_per_sm", "warps_per_sm"),
            *("occupancy", "bytes", "args"),
        )
        self.ranges = Growing("device", "stream", "name", "start", "dur", "external")
        self.syncs = Growing(
            *("device", "stream", "name", "start", "dur", "correlation"),
            *("wait_on_stream", "wait_on_event", "wait_on_correlation"),
        )
        self.memory = Growing(
            *("order", "thread", "name", "start", "bytes", "addr", "total", "reserved", "type", "index", "stack"),
        )
        self.marks = Growing("thread", "name", "start")
        self.arrows = Growing("id", "thread", "start", "out")
        self.flows = Growing("id", "thread", "name", "start", "out")
        self.counters: list[tuple[str, int, int, str, float]] = []
        self.samples: list[tuple[int, Any, str, float]] = []
        self.collectives: dict[int, dict[str, Any]] = {}  # by the order of the op
        self.kernel_collectives: dict[int, dict[str, Any]] = {}
        self.metadata: dict[tuple[Any, Any, str], Any] = {}
        self.device_pids: dict[Any, str] = {}  # the category of an activity on it
        self._calls_of: Counter[int] = Counter()  # by thread
        self.categories: Counter[tuple[str, str | None]] = Counter()
        self.spans: list[tuple[int, int]] = []
        self.left_out: Counter[str] = Counter()
        self.doubtful: Counter[str] = Counter()  # rows that hold what the file cannot mean
        self.unknown = 0  # calls of categories that nobody knows

    def add(self, events: list[Event]) -> None:
        """Take the events of one chunk."""
        found: Codes = Codes()  # in the order in which they come
        kinds = pair_codes(_PHASE, _CATEGORY, events, found)
        starts = _times(_TS, events)
        for (phase, category), number in found.items():
            order = np.flatnonzero(kinds == number)
            self.categories[phase, category] += len(order)
            self._take(phase, category, _Part(chosen(events, order), order + self.events, starts[order]))
        self.events += len(events)

    def _take(self, phase: str, category: str | None, part: _Part) -> None:
        if phase == "M":
            self._metadata(part.events)
            return
        lost = part.start == NOTHING
        if phase in "XiICstfR" and phase and lost.any():
            self.left_out["without a time"] += int(lost.sum())
            part = part.where(~lost)
        if phase == "X":
            part.measure()
            self._doubt(category, part)
            self._slices(category, part)
        elif phase in ("i", "I", "R"):
            self._instants(part)
        elif phase == "C":
            self._samples(part)
        elif phase in ("s", "t", "f"):
            self._arrows(phase, category, part)
        else:
            self.left_out[f"of the phase {phase[:20]!r}" if phase else "without a phase"] += len(part.events)

    def _doubt(self, category: str | None, part: _Part) -> None:
        """Count what ends before it begins, and activities of devices of which nobody knows how long they took."""
        backwards = int((part.dur < 0).sum())
        if backwards:
            self.doubtful["with an end before its beginning"] += backwards
        if category in categories.DEVICE and part.unended.any():
            self.doubtful["without a duration that can be read, taken as 0 ns"] += int(part.unended.sum())

    def _slices(self, category: str | None, part: _Part) -> None:
        kind = categories.HOST.get(category or "")
        if category in categories.SPANS:
            self.left_out["spans of the profiler itself"] += len(part.events)
            self.spans += zip(part.start.tolist(), (part.start + part.dur).tolist(), strict=True)
        elif kind == "python":
            self._python(part)
        elif kind is not None:
            self._calls(kind, category or "", part)
        elif category in categories.DEVICE:
            self._activities(category or "", part)
        elif category in categories.RANGES:
            self._device_ranges(part)
        elif category in categories.SYNCS:
            self._syncs(part)
        elif category in categories.COUNTERS:
            self._counters(part)
        else:
            memory = [event.name == "[memory]" for event in part.events]
            if any(memory):  # as torch's Python writes them
                self._memory(part.where(np.array(memory)))
                part = part.where(~np.array(memory))
            self.unknown += len(part.events)
            self._calls("other", category or "", part)

    def _threads(self, part: _Part) -> Ints:
        codes = pair_codes(_PROCESS, _THREAD, part.events, self.threads)
        for code, count in enumerate(np.bincount(codes).tolist()):
            if count:
                self._calls_of[code] += count
        return codes

    @property
    def host_pids(self) -> Counter[Any]:
        """The processes of calls, and how many each made."""
        keys = self.threads.keys_by_code()
        counts: Counter[Any] = Counter()
        for code, count in self._calls_of.items():
            counts[keys[code][0]] += count
        return counts

    def _names(self, part: _Part) -> Ints:
        return _NAME.codes(part.events, self.names, NOTHING)

    def _python(self, part: _Part) -> None:
        try:
            given = _PYTHON.decode(_ARGS.joined(part.events))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            given = []
        ids, callers = _PYTHON_ID.integers(given, NOTHING), _PYTHON_CALLER.integers(given, NOTHING)
        if len(given) != len(part.events) or ids is None or callers is None:
            self._calls("python", "python_function", part)
            return
        names = self._names(part)
        self.host.add(
            len(part.events),
            order=part.order,
            thread=self._threads(part),
            name=names,
            kind=KIND["python"],
            start=part.start,
            dur=part.dur,
            python=ids,
            caller=callers,
            open=_PYTHON_FINISHED.codes(given, {True: 0, False: 1}, 0) | part.unended,
        )

    def _calls(self, kind: str, category: str, part: _Part) -> None:
        if not part.events:
            return
        args = Arguments(part.events, _OF_CALLS[kind])
        if category not in _PLAIN:
            args.put("cat", category)
        args.drop(*_NAMES)
        columns: dict[str, Any] = {"external": args.ints("External id", "external id")}
        if kind in ("op", "range", "other"):
            columns |= self._op_columns(args, part)
        if kind == "python":
            columns |= {"python": args.ints("Python id"), "caller": args.ints("Python parent id")}
            args.drop("Python module id", "Python thread")
        if kind in ("runtime", "driver", "other"):
            columns["correlation"] = args.ints("correlation")
        if kind in ("runtime", "driver", "overhead"):  # as an export has them
            columns["stack"] = args.text_codes("Call stack", self.stacks)
        numbers, finished = args.distinct("finished")
        unfinished = np.array([row == (b"false",) for row in finished], np.int64)
        self.host.add(
            len(part.events),
            order=part.order,
            thread=self._threads(part),
            name=self._names(part),
            kind=KIND[kind],
            start=part.start,
            dur=part.dur,
            open=unfinished[numbers] | part.unended,
            args=args.rest(self.args),
            **columns,
        )

    def _op_columns(self, args: Arguments, part: _Part) -> dict[str, Ints]:
        if args.has(_COLLECTIVE):
            self._note_collectives(self.collectives, args, part.order)
        args.drop("Device")
        numbers, inputs = args.distinct(*_INPUTS)
        return {
            "record": args.ints("Record function id"),
            "seq": args.ints("Sequence number"),
            "forward": args.ints("Fwd thread id"),
            "flops": args.ints("FLOPs", "flops"),
            "inputs": self.inputs.of(row if any(row) else None for row in inputs)[numbers],
            "stack": args.text_codes("Call stack", self.stacks),
            "script": args.text_codes("Module Hierarchy", self.scripts),
        }

    @staticmethod
    def _note_collectives(notes: dict[int, dict[str, Any]], args: Arguments, order: Ints) -> None:
        for index in np.flatnonzero(args.present(_COLLECTIVE)).tolist():
            notes[int(order[index])] = args.row(index)

    def _activities(self, category: str, part: _Part) -> None:
        if category == "mtia_ccp_events":
            waits = np.array([event.name == "event_wait" for event in part.events])
            if waits.any():
                self._syncs(part.where(waits))
                part = part.where(~waits)
        args = Arguments(part.events, _OF_ACTIVITIES, _PER_SM)
        if args.has(_COLLECTIVE):
            self._note_collectives(self.kernel_collectives, args, part.order)
        if category not in _PLAIN:
            args.put("cat", category)
        args.drop(*_NAMES)
        device, stream = self._places(category, args, part)
        names = self._names(part)
        self.device.add(
            len(part.events),
            order=part.order,
            device=device,
            stream=stream,
            name=names,
            kind=self._kinds(category, part, args, names),
            start=part.start,
            dur=part.dur,
            external=args.ints("External id", "external id"),
            correlation=args.ints("correlation"),
            context=args.ints("context"),
            graph=args.ints("graph id"),
            graph_node=args.ints("graph node id"),
            grid=args.shapes("grid", self.shapes),
            block=args.shapes("block", self.shapes),
            registers=args.ints("registers per thread"),
            shared_bytes=args.ints("shared memory"),
            blocks_per_sm=args.floats("blocks per SM"),
            warps_per_sm=args.floats("warps per SM"),
            occupancy=args.floats(_OCCUPANCY if args.has(_OCCUPANCY) else "theoretical occupancy %"),
            bytes=args.ints("bytes"),
            args=args.rest(self.args),
        )

    def _kinds(self, category: str, part: _Part, args: Arguments, names: Ints) -> Ints:
        kind = categories.DEVICE[category]
        if kind != "compute":
            return np.full(len(part.events), ACTIVITY[kind])
        _, first, places = np.unique(names, return_index=True, return_inverse=True)
        distinct = [categories.kernel_kind(part.events[index].name) for index in first.tolist()]
        kinds = np.array([ACTIVITY[kind] for kind in distinct], np.int64)[places]
        if args.has(_COLLECTIVE):
            kinds[args.present(_COLLECTIVE)] = ACTIVITY["communication"]
        return kinds

    def _places(self, category: str, args: Arguments, part: _Part) -> tuple[Ints, Ints]:
        """The numbers of device and stream: as arguments, else those of the row that viewers draw."""
        keys: Codes = Codes()
        codes = pair_codes(_PROCESS, _THREAD, part.events, keys)
        for pid, _ in keys:
            self.device_pids.setdefault(number(pid), category)
        pids = np.array([_int_of(pid) for pid, _ in keys], np.int64)
        tids = np.array([_int_of(tid) for _, tid in keys], np.int64)
        device, stream = args.ints("device"), args.ints("stream")
        return np.where(device == NOTHING, pids[codes], device), np.where(stream == NOTHING, tids[codes], stream)

    def _device_ranges(self, part: _Part) -> None:
        args = Arguments(part.events)
        device, stream = self._places("gpu_user_annotation", args, part)
        self.ranges.add(
            len(part.events),
            device=device,
            stream=stream,
            name=self._names(part),
            start=part.start,
            dur=part.dur,
            external=args.ints("External id", "external id"),
        )

    def _syncs(self, part: _Part) -> None:
        args = Arguments(part.events)
        device, stream = self._places("cuda_sync", args, part)
        self.syncs.add(
            len(part.events),
            device=device,
            stream=np.where(stream < 0, NOTHING, stream),
            name=self._names(part),
            start=part.start,
            dur=part.dur,
            correlation=args.ints("correlation"),
            wait_on_stream=args.ints("wait_on_stream"),
            wait_on_event=args.ints("wait_on_cuda_event_id", "wait_on_event_id", "seq_num"),
            wait_on_correlation=args.ints("wait_on_cuda_event_record_corr_id"),
        )

    def _counters(self, part: _Part) -> None:
        for event, start, dur in zip(part.events, part.start.tolist(), part.dur.tolist(), strict=True):
            values = value_of(event.args) if event.args else None
            numbers = {name: value for name, value in (values or {}).items() if type(value) in (int, float)}
            self.counters += [(event.name, start, dur, name, float(value)) for name, value in numbers.items()]
            if not numbers:
                self.left_out["ranges of the profiler without a counter"] += 1

    def _instants(self, part: _Part) -> None:
        names = Codes()
        codes = _NAME.codes(part.events, names, NOTHING)
        memory = np.array([name in ("[memory]", "[OutOfMemory]") for name in names], bool)[codes]
        if memory.any():
            self._memory(part.where(memory))
        window = np.array([_is_window(name) for name in names], bool)[codes]
        self.left_out["marks of the profiler's window"] += int(window.sum())
        self.spans += [(time, time) for time in part.start[window].tolist()]
        others = part.where(~memory & ~window)
        if others.events:
            self.marks.add(
                len(others.events), thread=self._threads(others), name=self._names(others), start=others.start
            )

    def _memory(self, part: _Part) -> None:
        args = Arguments(part.events, _OF_MEMORY)
        size = args.ints("Bytes")
        known = (size != NOTHING) | [event.name == "[OutOfMemory]" for event in part.events]
        if not known.all():
            self.left_out["memory events without a number of bytes"] += int((~known).sum())
            self._memory(part.where(known))
            return
        self.memory.add(
            len(part.events),
            order=part.order,
            thread=self._threads(part),
            name=self._names(part),
            start=part.start,
            bytes=size,
            addr=args.ints("Addr"),
            total=args.ints("Total Allocated"),
            reserved=args.ints("Total Reserved"),
            type=args.ints("Device Type"),
            index=args.ints("Device Id"),
            stack=args.text_codes("Call stack", self.stacks),
        )

    def _samples(self, part: _Part) -> None:
        for event, time in zip(part.events, part.start.tolist(), strict=True):
            values = value_of(event.args) if event.args else None
            given = values if type(values) is dict else {}
            numbers = {name: value for name, value in given.items() if type(value) in (int, float)}
            for name, value in numbers.items():
                label = event.name if len(numbers) == 1 else f"{event.name}: {name}"
                self.samples.append((time, number(event.pid), label, float(value)))
            if not numbers:
                self.left_out["counters without a value"] += 1

    def _arrows(self, phase: str, category: str | None, part: _Part) -> None:
        if category in categories.KNOWN_ARROWS:
            return
        threads = pair_codes(_PROCESS, _THREAD, part.events, self.threads)
        ids = self.flow_ids.numbers([_ID], part.events)
        out = np.full(len(part.events), phase == "s", np.int64)
        if category == categories.BACKWARD_ARROW:
            self.arrows.add(len(part.events), id=ids, thread=threads, start=part.start, out=out)
        elif phase == "t":
            self.left_out["middles of arrows"] += len(part.events)
        else:
            self.flows.add(len(part.events), id=ids, thread=threads, name=self._names(part), start=part.start, out=out)

    def _metadata(self, events: Sequence[Event]) -> None:
        for event in events:
            self.metadata[number(event.pid), number(event.tid), event.name] = Raw(bytes(event.args))
        # Only the last of each is looked at: there may be hundreds of thousands, and few differ.
        if len(self.metadata) > 100_000:
            self.left_out["names of processes and threads beyond 100,000"] += len(self.metadata) - 100_000
            for key in list(self.metadata)[100_000:]:
                del self.metadata[key]

    def named(self, pid: Any, tid: Any, what: str) -> str | None:
        """What metadata say of a process or thread: process_name, process_labels, thread_name."""
        raw = self.metadata.get((pid, tid, what))
        values = value_of(raw) if raw else None
        value = values.get("labels" if what == "process_labels" else "name") if type(values) is dict else None
        return value if type(value) is str else None


class _Part:
    """Events of one phase and category with their times."""

    def __init__(self, events: list[Event], order: Ints, start: Ints) -> None:
        self.events = events
        self.order = order
        self.start = start
        self.dur: Ints = start
        self.unended: Any = 0

    def measure(self) -> None:
        """Read the durations. One that is missing is 0: the call had not ended."""
        dur = _times(_DUR, self.events)
        self.unended = (dur == NOTHING).astype(np.int64)
        self.dur = np.where(dur == NOTHING, 0, dur)

    def where(self, which: Any) -> _Part:
        places = np.flatnonzero(which)
        part = _Part(chosen(self.events, places), self.order[places], self.start[places])
        if self.dur is not self.start:
            part.dur = self.dur[places]
            part.unended = self.unended[places]
        return part


def _times(field: Field, events: list[Event]) -> Ints:
    found = field.times(events)
    return (
        nanoseconds([getattr(event, "ts" if field is _TS else "dur") for event in events]) if found is None else found
    )


def _int_of(value: int | str | None) -> int:
    """A number, also of a text that ends in one: "stream 7"."""
    if type(value) is int:
        return value if NOTHING < value < 2**63 else NOTHING
    digits = (value or "").rsplit(" ", 1)[-1] if type(value) is str else ""
    return int(digits) if digits.isdecimal() and len(digits) < 19 else NOTHING


def _is_window(name: str) -> bool:
    return name == "Record Window End" or name.startswith("Iteration Start")
