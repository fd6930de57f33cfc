"""The lanes of all processes of a reel, and of the streams of their devices, by numbers that stay when it grows."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.reel import Reel
from torchreel.reel.growing import LivingProcess
from torchreel.reel.reel import Process
from torchreel.reel.row_count import rows_in
from torchreel.reel.tables import KERNELS, OPS, TEXT
from torchreel.web.calls import COLUMNS, Labels, ModuleNames, module_names
from torchreel.web.lane_builder import LaneBuilder
from torchreel.web.lanes import Lane

_KERNEL_COLUMNS = ["id", "device", "stream", "name", "start_ns", "dur_ns"]


class LaneSet:
    """Reads what it was not yet given: of a process that records, the rows that are new."""

    def __init__(self, origin: int) -> None:
        self.labels = Labels()
        self._origin = origin
        self._lock = threading.Lock()
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._lanes: list[Lane] = []
        self._parts: dict[int, _Part] = {}
        self._read = False

    def lanes_of(self, reel: Reel) -> list[Lane]:
        """The lanes of a reel, in the order of their numbers."""
        with self._lock:
            if not self._read:
                self._take_in(reel)
                self._read = True
            return list(self._lanes)

    def renew(self, reel: Reel) -> int:
        """The reel has grown: gives when the earliest began that is new."""
        with self._lock:
            # What was not asked for yet is read when it is.
            return self._take_in(reel) if self._read else 0

    def streams(self) -> list[dict[str, Any]]:
        """The streams of devices, as threads."""
        return [stream for part in self._parts.values() for stream in part.streams]

    def _take_in(self, reel: Reel) -> int:
        earliest = []
        for process in reel.parts:
            part = self._parts.get(process.index)
            if part is None or not part.is_of(process):
                part = self._parts[process.index] = _Part(process, self._origin, self.labels)
                earliest.append(0)
            elif (began := part.read_on()) is not None:
                earliest.append(began)
            else:
                continue
            self._number(process.index, part.lanes())
        return min(earliest, default=0)

    def _number(self, process: int, lanes: dict[tuple[int, int], Lane]) -> None:
        for (thread, depth), lane in sorted(lanes.items()):
            number = self._numbers.setdefault((process, thread, depth), len(self._lanes))
            self._lanes[number : number + 1] = [lane]


class _Part:
    """The lanes of one process."""

    def __init__(self, process: Process, origin: int, labels: Labels) -> None:
        self._source = process.content if isinstance(process, LivingProcess) else process
        # A process that records tells of its modules at its end.
        is_closed = not isinstance(process, LivingProcess)
        modules: ModuleNames = module_names(process) if is_closed else {}
        self._builder = LaneBuilder(process.index, origin, labels, modules, rows_in(process, OPS) if is_closed else 0)
        self._batches = 0
        self.streams: list[dict[str, Any]] = []
        if isinstance(process, LivingProcess):
            self.read_on()
            return
        for table in process.batches(OPS, COLUMNS):
            self._builder.add(table)
        self._add_kernels(process)

    def is_of(self, process: Process) -> bool:
        return self._source is (process.content if isinstance(process, LivingProcess) else process)

    def read_on(self) -> int | None:
        """Of a process that records, what is new; gives when the earliest of it began."""
        if isinstance(self._source, Process):
            return None
        batches = self._source.batches(OPS.name)
        began = [self._builder.add(table.select(COLUMNS)) for table in batches[self._batches :]]
        self._batches = len(batches)
        return min((each for each in began if each is not None), default=None)

    def lanes(self) -> dict[tuple[int, int], Lane]:
        return self._builder.lanes()

    def _add_kernels(self, process: Process) -> None:
        """A stream is a thread with a number below 0."""
        table = process.table(KERNELS, _KERNEL_COLUMNS)
        if not table.num_rows:
            return
        streams = table.group_by(["device", "stream"]).aggregate([]).to_pylist()
        for row in sorted(streams, key=lambda row: (str(row["device"]), row["stream"] or 0)):
            number = -1 - len(self.streams)
            name = f"{row['device']} stream {row['stream']}"
            self.streams.append({"process": process.index, "id": number, "os_id": None, "name": name, "stream": True})
            self._builder.add(_as_calls(_of_stream(table, row), number))


def _of_stream(table: pa.Table, row: dict[str, Any]) -> pa.Table:
    import pyarrow.compute as pc  # takes as long to import as a tile to make, and a run without kernels needs none

    return table.filter(pc.and_(_is(table["device"], row["device"]), _is(table["stream"], row["stream"])))


def _is(column: pa.ChunkedArray, value: Any) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    if value is None:
        return pc.is_null(column)
    return pc.fill_null(pc.equal(column.cast(pa.string()) if column.type == TEXT else column, value), False)


def _as_calls(kernels: pa.Table, thread: int) -> pa.Table:
    """Kernels as rows of `ops`; if those of a stream overlap, they are laid out as asynchronous calls are."""
    import pyarrow.compute as pc

    rows = kernels.num_rows
    kernels = kernels.take(pc.sort_indices(kernels["start_ns"]))
    starts, durations = (kernels[name].fill_null(0).to_numpy() for name in ("start_ns", "dur_ns"))
    overlap = bool((np.maximum.accumulate(starts + durations)[:-1] > starts[1:]).any())
    columns = {
        "id": kernels["id"],
        "thread": pa.array(np.full(rows, thread, np.int32)),
        "name": kernels["name"],
        "kind": pa.array(["kernel"] * rows).dictionary_encode().cast(TEXT),
        "start_ns": kernels["start_ns"],
        "dur_ns": kernels["dur_ns"],
        "depth": pa.array(np.zeros(rows, np.int32)),
        "async": pa.array(np.full(rows, overlap)),
        "module": pa.nulls(rows, pa.int32()),
    }
    return pa.table(columns)
