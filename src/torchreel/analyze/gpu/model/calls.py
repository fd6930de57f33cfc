"""The calls of one process as arrays with a row per call, in the order of their ids."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel.analyze.source.call_tree import inherited
from torchreel.reel.columns import NOTHING, Ints, Mask, ints, rows_of, texts

COLUMNS = ["id", "parent", "thread", "name", "kind", "start_ns", "dur_ns", "step", "fwd", "fwd_thread", "module"]
COLUMNS += ["stack", "inputs", "flops"]

# Kinds that are no operator of torch: calls of Python, of a device's API, and of the profiler itself.
NO_OPS = frozenset({"python", "module", "runtime", "driver", "overhead", "range"})
API = frozenset({"runtime", "driver"})
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$|AccumulateGrad$")
_STEP = re.compile(r"ProfilerStep#\d+")
_LOADER = re.compile(
    r"enumerate\(DataLoader\)"
    r"|(torch[/\\]utils[/\\]data[/\\])?dataloader\.py\(\d+\): (__next__|_next_data)$"
    r"|DataLoader\w*\.(__next__|_next_data)\b"
)


def distinct(*columns: Ints) -> tuple[Ints, Ints]:
    """The distinct rows of columns whose values are at least -1, and for each row the number of its distinct one.

    The columns are packed into one number where they fit, which is far quicker than to sort rows.
    """
    table = np.stack(columns, 1)
    sizes = [int(column.max(initial=-1)) + 2 for column in columns]
    if math.prod(sizes) >= 2**62:
        keys, place = np.unique(table, axis=0, return_inverse=True)
        return keys, place.reshape(-1)
    packed = np.zeros(len(table), np.int64)
    for column, size in zip(columns, sizes, strict=True):
        packed = packed * size + column + 1
    _, first, place = np.unique(packed, return_index=True, return_inverse=True)
    return table[first], place.reshape(-1)


@dataclass(frozen=True)
class Calls:
    """The calls of one process. `above` and `fwd` are rows, or NOTHING; `end` is after `start` or equal to it."""

    id: Ints
    above: Ints
    thread: Ints
    name: Ints
    names: list[str]
    kind: Ints
    kinds: list[str]
    start: Ints
    end: Ints
    step: Ints
    fwd: Ints
    fwd_thread: Ints
    module: Ints
    stack: Ints
    inputs: Ints
    flops: Ints

    def __len__(self) -> int:
        return len(self.id)

    def rows(self, ids: Ints) -> Ints:
        """The rows of calls by their ids, or NOTHING."""
        return rows_of(self.id, ids)

    def text(self, row: int) -> str:
        """The name of a call; empty for no call."""
        return self.names[int(self.name[row])] if row >= 0 and self.name[row] >= 0 else ""

    def named(self, chosen: Callable[[str], object]) -> Mask:
        """Which calls have a name that is chosen."""
        return np.array([*(bool(chosen(name)) for name in self.names), False], bool)[self.name]

    def numbered(self, numbers: set[int]) -> Mask:
        """Which calls have a name of one of these numbers."""
        return np.isin(self.name, list(numbers))

    def of_kind(self, kinds: frozenset[str]) -> Mask:
        """Which calls are of one of these kinds."""
        return np.array([*(kind in kinds for kind in self.kinds), False], bool)[self.kind]

    def nearest(self, chosen: Mask) -> Ints:
        """For each call the row of the innermost chosen call around it, itself included, or NOTHING."""
        return inherited(self.above, np.where(chosen, np.arange(len(self)), NOTHING))

    @functools.cached_property
    def ops(self) -> Mask:
        """Which calls are operators of torch."""
        return ~self.of_kind(NO_OPS)

    @functools.cached_property
    def operator(self) -> Ints:
        """For each call the row of the innermost operator around it, else of the innermost range, or NOTHING.

        Ranges that only say which step runs are none.
        """
        ranges = self.of_kind(frozenset({"range"})) & ~self.named(_STEP.match)
        operator, around = self.nearest(self.ops), self.nearest(ranges)
        return np.where(operator >= 0, operator, around)

    @functools.cached_property
    def loading(self) -> Mask:
        """Which calls wait for a DataLoader, or lie in one that does."""
        return self.nearest(self.named(_LOADER.search)) >= 0

    @functools.cached_property
    def threads(self) -> list[int]:
        """The threads that made calls."""
        return [int(thread) for thread in np.unique(self.thread)]

    def callers(self) -> dict[int, int]:
        """For each thread that runs backward calls of another thread's forward, that other thread.

        Where no call says whose forward it belongs to, it is the thread with most calls.
        """
        found: dict[int, int] = {}
        foreign = (self.fwd_thread >= 0) & (self.fwd_thread != self.thread)
        linked = np.flatnonzero((self.fwd >= 0) & ~foreign)
        by_call = linked[self.thread[self.fwd[linked]] != self.thread[linked]]
        threads = np.concatenate((self.thread[foreign], self.thread[by_call]))
        others = np.concatenate((self.fwd_thread[foreign], self.thread[self.fwd[by_call]]))
        for thread in np.unique(threads):
            values, counts = np.unique(others[threads == thread], return_counts=True)
            found[int(thread)] = int(values[counts.argmax()])
        unlinked = [thread for thread in self._threads_of_backward() if thread not in found]
        values, counts = np.unique(self.thread, return_counts=True)
        for thread in unlinked:
            others = values != thread
            if others.any():
                found[thread] = int(values[others][counts[others].argmax()])
        return found

    @functools.cached_property
    def backward(self) -> Mask:
        """Which calls are nodes of autograd's graph; old traces say so by their names only."""
        return self.of_kind(frozenset({"backward"})) | (self.ops & self.named(_BACKWARD.search))

    def _threads_of_backward(self) -> list[int]:
        """The threads of whose outermost ops most are of backward."""
        outermost = np.flatnonzero((self.above < 0) & self.ops)
        threads, place = np.unique(self.thread[outermost], return_inverse=True)
        share = np.bincount(place, weights=self.backward[outermost], minlength=len(threads)) / np.bincount(place)
        return [int(thread) for thread in threads[share > 0.5]]


def calls_of(table: pa.Table) -> Calls:
    """The calls of one process, from the columns COLUMNS of its ops."""
    table = table.take(np.argsort(ints(table, "id"), kind="stable"))
    ids = ints(table, "id")
    name, names = texts(table, "name")
    kind, kinds = texts(table, "kind")
    start = ints(table, "start_ns", 0)
    above = rows_of(ids, ints(table, "parent"))
    return Calls(
        id=ids,
        above=np.where(above < np.arange(len(ids)), above, NOTHING),  # a damaged table may go round in circles
        thread=ints(table, "thread"),
        name=name,
        names=names,
        kind=kind,
        kinds=kinds,
        start=start,
        end=start + np.maximum(ints(table, "dur_ns", 0), 0),
        step=ints(table, "step"),
        fwd=rows_of(ids, ints(table, "fwd")),
        fwd_thread=ints(table, "fwd_thread"),
        module=ints(table, "module"),
        stack=ints(table, "stack"),
        inputs=ints(table, "inputs"),
        flops=ints(table, "flops"),
    )
