"""The activities of devices as arrays: kernels, copies and sets of a whole reel, of a step, or of one device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from torchreel.analyze.gpu.calls import Calls
from torchreel.analyze.gpu.intervals import Intervals, union
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints, Mask, ints, texts, translate

COMPUTE, COMMUNICATION, COPY, SET = range(4)
KINDS = ("compute", "communication", "copy", "set")
NO_STREAM = np.iinfo(np.int64).min  # in place of null: a stream may have any number, -1 too

_COLUMNS = (
    "id",
    "device",
    "stream",
    "name",
    "start_ns",
    "dur_ns",
    "op",
    "kind",
    "launch",
    "graph",
    "blocks_per_sm",
    "occupancy",
    "bytes",
    "direction",
    "collective",
    "step",
)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Words:
    """The texts behind the numbers of a column."""

    devices: list[str]
    names: list[str]
    kinds: list[str]
    directions: list[str]


@dataclass(frozen=True)
class Activities:
    """One item per activity, sorted by process, device, stream and start; null is NOTHING, or NaN of a float."""

    words: Words
    id: Ints
    process: Ints
    device: Ints
    stream: Ints
    name: Ints
    kind: Ints  # COMPUTE, COMMUNICATION, COPY or SET; what is none of these counts as compute
    said: Ints  # the kind as the reel has it
    start: Ints
    end: Ints
    op: Ints
    launch: Ints
    launch_start: Ints  # of the call that launched it
    launch_end: Ints
    replay: Mask  # part of a graph, which one call launched with all its other activities
    blocks_per_sm: Floats
    occupancy: Floats
    bytes: Ints
    direction: Ints
    collective: Ints
    step: Ints

    def __len__(self) -> int:
        return len(self.start)

    @property
    def dur(self) -> Ints:
        return self.end - self.start

    @property
    def launched(self) -> Mask:
        """Whether the call that launched it was recorded."""
        known: Mask = self.launch != NOTHING
        return known

    def take(self, chosen: Mask | Ints | slice) -> Activities:
        """Some of them: a mask, places, or a range of places."""
        arrays = {field.name: getattr(self, field.name)[chosen] for field in fields(self) if field.name != "words"}
        return replace(self, **arrays)

    def busy(self, *kinds: int) -> Intervals:
        """When at least one of them ran: of all kinds, or of some."""
        if not kinds:
            return union(self.start, self.end)
        chosen = np.isin(self.kind, kinds)
        return union(self.start[chosen], self.end[chosen])

    def by_device(self) -> Iterator[tuple[int, str, Activities]]:
        """Each process and device, with its activities."""
        for begin, end in groups(self.process, self.device):
            yield int(self.process[begin]), self.words.devices[self.device[begin]], self.take(slice(begin, end))

    def by_stream(self) -> Iterator[tuple[int, str, int | None, Activities]]:
        """Each process, device and stream, with its activities in the order in which they began."""
        for begin, end in groups(self.process, self.device, self.stream):
            stream = int(self.stream[begin])
            device = self.words.devices[self.device[begin]]
            yield (
                int(self.process[begin]),
                device,
                None if stream == NO_STREAM else stream,
                self.take(slice(begin, end)),
            )

    def by_process(self) -> Iterator[tuple[int, Activities]]:
        """Each process, with its activities."""
        for begin, end in groups(self.process):
            yield int(self.process[begin]), self.take(slice(begin, end))

    def within(self, step: int | None = None, device: str | None = None) -> Activities:
        """Those whose launch was in a step, and those of one device."""
        chosen = np.ones(len(self), bool)
        if step is not None:
            chosen &= self.step == step
        if device is not None:
            chosen &= np.array([*(name == device for name in self.words.devices), False], bool)[self.device]
        return self.take(chosen)


def activities(reel: Reel) -> Activities:
    """Read the activities of all devices."""
    import pyarrow.compute as pc  # slow to import, and few questions need it

    table = reel.table("kernels", list(_COLUMNS))
    if table["start_ns"].null_count:
        table = table.filter(pc.is_valid(table["start_ns"]))
    device, devices = texts(table, "device")
    device = np.where(device == NOTHING, len(devices), device)
    name, names = texts(table, "name")
    said, kinds = texts(table, "kind")
    direction, directions = texts(table, "direction")
    start = ints(table, "start_ns")
    launch_start, launch_end, of_graph = _launches(reel, table)
    found = Activities(
        words=Words(
            [*devices, "(no device)"], [*names, "(no name)"], [*kinds, "compute"], [*directions, "(no direction)"]
        ),
        id=ints(table, "id"),
        process=ints(table, "process"),
        device=device,
        stream=ints(table, "stream", NO_STREAM),
        name=name,
        kind=translate(said, kinds, {word: number for number, word in enumerate(KINDS)}, COMPUTE),
        said=said,
        start=start,
        end=start + np.maximum(ints(table, "dur_ns", 0), 0),
        op=ints(table, "op"),
        launch=np.where(launch_start == NOTHING, NOTHING, ints(table, "launch")),
        launch_start=launch_start,
        launch_end=launch_end,
        replay=of_graph | (ints(table, "graph", 0) > 0),
        blocks_per_sm=_floats(table, "blocks_per_sm"),
        occupancy=_floats(table, "occupancy"),
        bytes=ints(table, "bytes"),
        direction=direction,
        collective=ints(table, "collective"),
        step=ints(table, "step"),
    )
    order = np.lexsort((found.end, found.start, found.stream, found.device, found.process))
    return found.take(order)


def _launches(reel: Reel, table: pa.Table) -> tuple[Ints, Ints, Mask]:
    """When the call that launched each activity began and ended, and whether it launched a graph."""
    wanted = ints(table, "launch")
    if not np.any(wanted != NOTHING):
        nothing = np.full(len(wanted), NOTHING, np.int64)
        return nothing, nothing, np.zeros(len(wanted), bool)
    calls = Calls.of(reel, "name", "start_ns", "dur_ns")
    rows = calls.rows(ints(table, "process"), wanted)
    start, dur = calls.ints("start_ns"), calls.ints("dur_ns")
    name, names = calls.texts("name")
    graph = np.array([*("GraphLaunch" in text for text in names), False], bool)[name]
    known = rows != NOTHING
    begin = np.where(known, start[rows], NOTHING)
    return begin, np.where(known, begin + dur[rows], NOTHING), known & graph[rows]


def _floats(table: pa.Table, name: str) -> Floats:
    values: Floats = table.column(name).to_numpy().astype(np.float64, copy=False)
    return values


def groups(*keys: Ints) -> Iterator[tuple[int, int]]:
    """The ranges of rows that are equal in all keys, by which they are sorted."""
    count = len(keys[0])
    if not count:
        return
    changes = np.zeros(count - 1, bool)
    for key in keys:
        changes |= key[1:] != key[:-1]
    limits = [0, *(np.flatnonzero(changes) + 1).tolist(), count]
    yield from itertools.pairwise(limits)
