"""What backends tell of their work: events of an adapter's runtime, and those that a user's backend reports itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchreel.edge.alignment import Span, inside, offsets
from torchreel.edge.formats.adapter import BackendEvent, Location, TensorType
from torchreel.edge.locations import LocationTables
from torchreel.edge.surroundings import Surroundings

Row = dict[str, Any]

# Names of dtypes as the recorder writes them.
_DTYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "int64": "long int",
    "int32": "int",
    "int16": "short int",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
}


@dataclass(frozen=True)
class Reported:
    """An event that a backend reported while the model was profiled."""

    start_ns: int
    end_ns: int
    debug_handle: int
    name: str
    backend: str
    told_ns: int
    """When it was reported, on the CPU's clock."""
    os_thread: int


@dataclass(frozen=True)
class ReportedMemory:
    """A change of memory that a backend reported."""

    address: int
    bytes: int
    allocated: int
    reserved: int
    device: str
    told_ns: int
    os_thread: int


@dataclass
class BackendRows:
    """Rows of ops, inputs and threads for what backends did, below the calls of the model."""

    calls: list[Row]
    locations: LocationTables
    next_id: int
    next_input: int
    next_thread: int
    threads_by_os_id: dict[int, int]
    modules: bool
    stacks: bool
    rows: list[Row] = field(default_factory=list)
    inputs: list[Row] = field(default_factory=list)
    threads: list[Row] = field(default_factory=list)
    _input_ids: dict[tuple[TensorType, ...], int] = field(default_factory=dict)
    _thread_ids: dict[tuple[str, int], int] = field(default_factory=dict)

    def add_measured(self, events: Sequence[Sequence[BackendEvent]]) -> None:
        """The events of a runtime: a list for each call, on the runtime's own clock."""
        pairs = [(call, list_) for call, list_ in zip(self.calls, events, strict=False) if list_]
        spans = [_span(call) for call, _ in pairs]
        measured = [(min(e.start_ns for e in list_), max(e.end_ns for e in list_)) for _, list_ in pairs]
        for (call, list_), offset in zip(pairs, offsets(spans, measured), strict=True):
            self._add_call(call, list_, offset)

    def _add_call(self, call: Row, events: Sequence[BackendEvent], offset: int) -> None:
        made: dict[int, Row] = {}
        # Those around others first: the others are cut to them.
        for index in _outermost_first(events):
            event = events[index]
            parent = call if event.parent is None else made[event.parent]
            span = inside(_span(parent), (event.start_ns + offset, event.end_ns + offset))
            row = self._row(event.name, event.backend, parent, span, event.debug_handle)
            if event.thread:
                row["thread"] = self._thread(event.backend, event.thread)
            row["inputs"] = self._input(event.inputs)
            row["flops"] = event.flops
            self._location(row, event.location)
            made[index] = row

    def _location(self, row: Row, location: Location | None) -> None:
        """Its own location, or else that of the call around it."""
        if location is None:
            return
        module = self.locations.module(location) if self.modules else None
        row["module"] = row["module"] if module is None else module
        row["stack"] = self.locations.stack(location) if self.stacks else None

    def add_reported(
        self, events: Sequence[Reported], ops: Sequence[Row], adjust: bool, known: Mapping[int, Location]
    ) -> None:
        """Events that were reported one by one; with `adjust`, on another clock than the CPU's.

        `known` has the locations of debug handles.
        """
        spans = [(event.start_ns, event.end_ns) for event in events]
        if adjust:
            spans = self._adjusted(events)
        surroundings = Surroundings([*ops, *self.rows])
        for event, span in sorted(zip(events, spans, strict=True), key=lambda pair: (pair[1][0], -pair[1][1])):
            parent = surroundings.innermost(span, self.threads_by_os_id.get(event.os_thread))
            row = self._row(event.name, event.backend, parent, span, event.debug_handle)
            if parent is None:
                row["thread"] = self._thread(event.backend, 0)
            self._location(row, known.get(event.debug_handle))
            surroundings.add(row)

    def _adjusted(self, events: Sequence[Reported]) -> list[Span]:
        """Each backend has its own clock. An event happened after the call began within which, or after which, it was
        reported, and before it was reported."""
        found: dict[int, Span] = {}
        for backend in {event.backend for event in events}:
            indices = [index for index, event in enumerate(events) if event.backend == backend]
            around = [self._call_of(events[index]) for index in indices]
            measured = [(events[index].start_ns, events[index].end_ns) for index in indices]
            for index, span, inner, offset in zip(indices, around, measured, offsets(around, measured), strict=True):
                found[index] = inside(span, (inner[0] + offset, inner[1] + offset))
        return [found[index] for index in range(len(events))]

    def _call_of(self, event: Reported) -> Span:
        """The time within which an event of an unknown clock happened."""
        begun = [call for call in self.calls if call["start_ns"] <= event.told_ns]
        if not begun:
            return event.told_ns, event.told_ns
        thread = self.threads_by_os_id.get(event.os_thread)
        # Another thread may have begun a call since: an event is of the call within which it was reported, if any.
        within = [call for call in begun if call["thread"] == thread and _span(call)[1] >= event.told_ns]
        start, end = _span((within or begun)[-1])
        return start, max(start, min(end, event.told_ns))

    def _row(self, name: str, backend: str, parent: Row | None, span: Span, handle: int | None) -> Row:
        row = {
            "id": self.next_id + len(self.rows),
            "parent": None if parent is None else parent["id"],
            "thread": None if parent is None else parent["thread"],
            "name": name,
            "overload": "",
            "kind": "backend",
            "start_ns": span[0],
            "dur_ns": span[1] - span[0],
            "depth": 0 if parent is None else parent["depth"] + 1,
            "module": None if parent is None else parent["module"],
            "stack": None if parent is None else parent["stack"],
            "inputs": None,
            "flops": None,
            "alloc_bytes": 0,
            "self_alloc_bytes": 0,
            "async": False,
            "open": False,
            "backend": backend,
            "debug_handle": handle,
        }
        self.rows.append(row)
        return row

    def _thread(self, backend: str, number: int) -> int:
        key = (backend, number)
        if key not in self._thread_ids:
            self._thread_ids[key] = self.next_thread + len(self._thread_ids)
            name = f"{backend} {number}" if number else backend
            self.threads.append({"id": self._thread_ids[key], "os_id": None, "torch_id": None, "name": name})
        return self._thread_ids[key]

    def _input(self, types: tuple[TensorType, ...] | None) -> int | None:
        if types is None:
            return None
        if types not in self._input_ids:
            self._input_ids[types] = self.next_input + len(self._input_ids)
            self.inputs.append(
                {
                    "id": self._input_ids[types],
                    "dims": json.dumps([list(type.sizes) for type in types]),
                    "strides": json.dumps([_strides(type.sizes) for type in types]),
                    "dtypes": json.dumps([_DTYPES.get(type.dtype, type.dtype) for type in types]),
                    "scalars": json.dumps([""] * len(types)),
                }
            )
        return self._input_ids[types]


def _span(row: Row) -> Span:
    return row["start_ns"], row["start_ns"] + row["dur_ns"]


def _strides(sizes: tuple[int, ...]) -> list[int]:
    strides = [1] * len(sizes)
    for index in range(len(sizes) - 2, -1, -1):
        strides[index] = strides[index + 1] * max(sizes[index + 1], 1)
    return strides


def _outermost_first(events: Sequence[BackendEvent]) -> list[int]:
    def depth(index: int) -> int:
        count, parent = 0, events[index].parent
        while parent is not None and count <= len(events):
            count, parent = count + 1, events[parent].parent
        return count

    return sorted(range(len(events)), key=lambda index: (depth(index), events[index].start_ns, index))
