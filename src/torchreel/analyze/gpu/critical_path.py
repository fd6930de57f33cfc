"""Critical path: what decided how long a run took, from its end back to its beginning.

From the last moment of the window the path goes back, each time along the dependency that was the last to be met
(model/graph.py): from a kernel to the kernel before it in its stream, or to its launch; from a launch through what the
host did before; from a wait of the host to the kernel that it waited for. It covers the window without a gap, so the
rows add up to it. To make something faster that is not on the path changes nothing.

Kinds of rows: compute, communication, copy, set, other (of a device); launch (from a launch to its kernel), queue
(between two kernels), sync (the host returns from a wait), host (the host computes), data loader, and unknown: before
the first moment that the trace can explain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.model.calls import distinct
from torchreel.analyze.gpu.model.graph import EVENT, FORK, HOST, JOIN, LAUNCH, RUN, STREAM, WAIT, Graph, graph_of
from torchreel.analyze.gpu.model.run import NO_KERNELS, DeviceRun, device_runs
from torchreel.analyze.gpu.model.window import Window, window_of
from torchreel.reel import Reel
from torchreel.reel.columns import Ints

NO_EVENTS = (
    "The trace has no synchronisation events, so the path does not know which streams waited for each other: it "
    "guesses that a kernel did if it began right after one of another stream. To know it, give torch.profiler the "
    "experimental option enable_cuda_sync_events=True."
)
NO_OP = "(no op)"
BEFORE = "(nothing recorded before)"

_SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("what", pa.string()),
        ("kind", pa.string()),
        ("ns", pa.int64()),
        ("percent", pa.float64()),  # of the window of the process
        ("count", pa.int64()),  # pieces of the path
    ]
)


@dataclass(frozen=True)
class CriticalPath:
    """A row per process, what and kind, the longest first; notes say what the path cannot know."""

    rows: pa.Table
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Piece:
    """A part of the path."""

    start: int
    end: int
    what: str
    kind: str


def critical_path(reel: Reel, step: int | None = None) -> CriticalPath:
    """The path through the whole run, or through a step until the last kernel that was launched in it.

    `rows` has process, what, kind, ns, percent, count. A process without kernels, or without the step, has no rows.
    """
    rows: list[tuple[int, str, str, int, float, int]] = []
    notes: list[str] = []
    found = False
    for run in device_runs(reel):
        found = True
        graph = graph_of(run)
        window = window_of(graph, step)
        if window is None:
            notes.append(f"Process {run.process} has no step {step}.")
            continue
        if not graph.knows_events and graph.streams > 1 and NO_EVENTS not in notes:
            notes.append(NO_EVENTS)
        sums: dict[tuple[str, str], list[int]] = {}
        for what, kind, ns, count in _summed(graph, window):
            values = sums.setdefault((what, kind), [0, 0])
            values[0] += ns
            values[1] += count
        rows += [
            (run.process, what, kind, ns, 100.0 * ns / window.ns, count) for (what, kind), (ns, count) in sums.items()
        ]
    if not found:
        notes.append(NO_KERNELS)
    rows.sort(key=lambda row: (row[0], -row[3], row[1], row[2]))
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    arrays = [pa.array(list(column), kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)]
    return CriticalPath(pa.table(arrays, schema=_SCHEMA), tuple(notes))


def pieces(graph: Graph, step: int | None = None) -> list[Piece]:
    """The path in the order of time; each piece begins where the one before it ends."""
    window = window_of(graph, step)
    if window is None:
        return []
    found = [piece for edge, start, end in _walked(graph, window) for piece in _of_device(graph, edge, start, end)]
    for starts, ends, label, labels in _of_host(graph, window):
        spans = zip(starts.tolist(), ends.tolist(), label.tolist(), strict=True)
        found += [Piece(start, end, *labels[number]) for start, end, number in spans]
    return sorted(found, key=lambda piece: piece.start)


def _summed(graph: Graph, window: Window) -> Iterator[tuple[str, str, int, int]]:
    """What is on the path, its kind, for how long, and in how many pieces."""
    for edge, start, end in _walked(graph, window):
        for piece in _of_device(graph, edge, start, end):
            yield piece.what, piece.kind, end - start, 1
    for starts, ends, label, labels in _of_host(graph, window):
        times = np.zeros(len(labels), np.int64)
        np.add.at(times, label, ends - starts)
        counts = np.bincount(label, minlength=len(labels))
        for (what, kind), ns, count in zip(labels, times.tolist(), counts.tolist(), strict=True):
            yield what, kind, ns, count


def _walked(graph: Graph, window: Window) -> Iterator[tuple[int, int, int]]:
    """The edges of the path from its end to its beginning, each with the time that it covers; -1 before the first."""
    node = int(window.lasts[graph.time[window.lasts].argmax()])
    while (end := int(graph.time[node])) > window.start:
        edge = int(graph.bound_by[node])
        if edge < 0:
            yield edge, window.start, end
            return
        node = int(graph.source[edge])
        start = max(int(graph.time[node]), window.start)
        if end > start:
            yield edge, start, end


def _of_device(graph: Graph, edge: int, start: int, end: int) -> Iterator[Piece]:
    """What an edge is that no thread of the host explains."""
    run, kind, target = graph.run, int(graph.kind[edge]), int(graph.target[edge])
    if edge < 0:
        yield Piece(start, end, BEFORE, "unknown")
    elif kind == RUN:
        kernel = target - graph.ends
        yield Piece(start, end, run.kernels.text(kernel), run.kernels.kind_of(kernel) or "other")
    elif kind == WAIT:
        call = int(run.timeline(int(graph.marks.thread[target])).at(np.array([end - 1]))[0])
        yield Piece(start, end, run.operator_name(call) or run.calls.text(call) or NO_OP, "sync")
    elif kind in (LAUNCH, STREAM, EVENT):
        kernel = target - graph.starts
        called = run.operator_name(int(run.kernels.launch[kernel])) or run.operator_name(int(run.kernels.op[kernel]))
        yield Piece(start, end, called or run.kernels.text(kernel), "launch" if kind == LAUNCH else "queue")


def _of_host(graph: Graph, window: Window) -> Iterator[tuple[Ints, Ints, Ints, list[tuple[str, str]]]]:
    """The parts of the path in which a thread decided, cut by call: starts, ends, numbers of labels, and the labels."""
    run = graph.run
    spans: dict[int, list[tuple[int, int]]] = {}
    for edge, start, end in _walked(graph, window):
        if edge >= 0 and graph.kind[edge] in (HOST, FORK, JOIN):
            # A fork is the time of the thread that calls, a join of the one that goes on.
            node = graph.source[edge] if graph.kind[edge] == FORK else graph.target[edge]
            spans.setdefault(int(graph.marks.thread[node]), []).append((start, end))
    loading = np.append(run.calls.loading, False).astype(np.int64)
    for thread, limits in spans.items():
        first, last = (np.array(each, np.int64) for each in zip(*limits, strict=True))
        _, starts, ends, calls = run.timeline(thread).pieces(first, last)
        keys, label = distinct(run.operator_numbers[calls], run.line_numbers[calls], loading[calls])
        yield starts, ends, label, [_label(run, *key) for key in keys.tolist()]


def _label(run: DeviceRun, op: int, line: int, loading: int) -> tuple[str, str]:
    what = run.calls.names[op] if op >= 0 else run.line_text(line)
    return what or NO_OP, "data loader" if loading else "host"
