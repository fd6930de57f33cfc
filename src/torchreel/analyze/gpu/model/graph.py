"""What had to happen before what: the host's calls and the device's kernels as a graph of moments.

A node is a moment: the start or the end of a kernel, or a mark on a thread of the host (a launch, the start and the end
of a wait, the fork to a thread of backward and the join, the limits of steps). An edge says that one moment came after
another, and how long it took at least:

- `host`: from a mark of a thread to its next. The time between is work of the host, which is kept, unless it is a wait
  for the device, or a thread of backward that has nothing to do: then what ended the wait says when it goes on.
- `fork` and `join`: the thread that calls backward, and the thread that runs it.
- `launch`: from the start of a call to the start of the kernel that it launched.
- `run`: from the start of a kernel to its end.
- `stream`: to the next kernel of a stream. One that overlaps the next is held by its start.
- `event`: from a kernel to one of another stream that waited for it; guessed where the trace has no such waits.
- `wait`: from a kernel to the end of the call of the host that waited for it.

Of the edges into a node one was the last to be met, and it keeps the lag that was measured. The others had time to
spare: they keep the usual lag of their kind, at most what was measured. So every node has the time that was recorded
if nothing is changed.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

import numpy as np

from torchreel.analyze.gpu.model.marks import Marks, marks_of
from torchreel.analyze.gpu.model.run import DeviceRun
from torchreel.analyze.gpu.model.streams import StreamOrder, event_waits, guessed_waits, host_waits
from torchreel.reel.columns import NOTHING, Ints, Mask

EDGES = ("host", "fork", "join", "launch", "run", "stream", "event", "wait")
HOST, FORK, JOIN, LAUNCH, RUN, STREAM, EVENT, WAIT = range(len(EDGES))


@dataclass(frozen=True)
class Graph:
    """Nodes are the marks, then the starts of kernels, then their ends. Edges are in the order of their targets."""

    run: DeviceRun
    marks: Marks
    time: Ints
    source: Ints
    target: Ints
    kind: Ints
    lag: Ints
    binding: Mask
    knows_events: bool  # whether the trace says which streams waited for which
    streams: int

    @property
    def starts(self) -> int:
        """The number of the first kernel's start."""
        return len(self.marks)

    @property
    def ends(self) -> int:
        """The number of the first kernel's end."""
        return len(self.marks) + len(self.run.kernels)

    @functools.cached_property
    def bound_by(self) -> Ints:
        """For each node the edge that was the last to be met, or NOTHING."""
        found = np.full(len(self.time), NOTHING)
        edges = np.flatnonzero(self.binding)
        found[self.target[edges]] = edges
        return found

    def replayed(self, lag: Ints) -> Ints:
        """The time of each node if the edges have other lags; one without edges keeps its time."""
        times = self.time.tolist()
        current = -1
        for source, target, took in zip(self.source.tolist(), self.target.tolist(), lag.tolist(), strict=True):
            moment = times[source] + took
            if target != current:
                times[target] = moment
                current = target
            elif moment > times[target]:
                times[target] = moment
        return np.array(times, np.int64)


@dataclass
class _Edges:
    """Edges while they are collected."""

    time: Ints
    parts: list[tuple[Ints, Ints, Ints, Ints]] = field(default_factory=list)

    def add(self, kind: int, source: Ints, target: Ints, usual: Ints | int | None) -> None:
        """Edges of a kind; `usual` is their lag if others bind, or None: always what was measured.

        What would lead back in time says that the trace does not show the real reason: it is left out.
        """
        forward = self.time[source] <= self.time[target]
        source, target = source[forward], target[forward]
        measured = self.time[target] - self.time[source]
        if usual is None:
            least = measured
        else:
            least = np.minimum(np.broadcast_to(np.asarray(usual, np.int64), forward.shape)[forward], measured)
        self.parts.append((source, target, np.full(len(source), kind), least))

    def joined(self) -> tuple[Ints, Ints, Ints, Ints]:
        first, second, third, fourth = (np.concatenate(part) for part in zip(*self.parts, strict=True))
        return first, second, third, fourth


def graph_of(run: DeviceRun) -> Graph:
    """The graph of one process."""
    marks = marks_of(run)
    kernels = run.kernels
    count = len(kernels)
    starts = len(marks) + np.arange(count)
    ends = starts + count
    time = np.concatenate((marks.time, kernels.start, kernels.end))
    streams = StreamOrder(run)
    edges = _Edges(time)
    _add_host(edges, marks)
    launch, stream = _usual_lags(run, streams)
    launched = np.flatnonzero(kernels.launch >= 0)
    calls = kernels.launch[launched]
    edges.add(LAUNCH, marks.at(run.calls.thread[calls], run.calls.start[calls]), starts[launched], launch)
    edges.add(RUN, starts, ends, None)
    following = np.flatnonzero(streams.before >= 0)
    previous = streams.before[following]
    overlap = kernels.end[previous] > kernels.start[following]
    edges.add(STREAM, starts[previous[overlap]], starts[following[overlap]], None)
    edges.add(STREAM, ends[previous[~overlap]], starts[following[~overlap]], stream)
    awaited, waiter, knows = event_waits(run, streams)
    if not knows:
        awaited, waiter = guessed_waits(run, streams, launch, stream)
    edges.add(EVENT, ends[awaited], starts[waiter], stream)
    awaited, wait = host_waits(run, streams)
    back = kernels.end[awaited]
    returned = run.calls.end[wait] - back
    real = returned[(returned >= 0) & (back > run.calls.start[wait])]
    usual = int(np.median(real)) if len(real) else 0
    edges.add(WAIT, ends[awaited], marks.at(run.calls.thread[wait], run.calls.end[wait]), usual)
    return _bound(Graph(run, marks, time, *edges.joined(), np.zeros(0, bool), knows, len(streams)))


def _add_host(edges: _Edges, marks: Marks) -> None:
    """The order of each thread's marks, and what joins threads of backward with those that call them."""
    edges.add(
        HOST,
        marks.source,
        marks.target,
        np.where(marks.elastic, 0, edges.time[marks.target] - edges.time[marks.source]),
    )
    edges.add(FORK, marks.fork_source, marks.fork_target, 0)
    edges.add(JOIN, marks.join_source, marks.join_target, 0)


def _usual_lags(run: DeviceRun, streams: StreamOrder) -> tuple[int, int]:
    """How long it usually takes from a launch to its kernel on an idle stream, and between two kernels of a stream."""
    kernels, calls = run.kernels, run.calls
    launched = np.flatnonzero(kernels.launch >= 0)
    before = streams.before[launched]
    free = np.where(before >= 0, kernels.end[before], np.iinfo(np.int64).min)
    asked = calls.start[kernels.launch[launched]]
    late = asked >= free
    delays = (kernels.start[launched] - asked)[late]
    gaps = (kernels.start[launched] - free)[~late & (before >= 0)]
    gaps = gaps[gaps >= 0]
    # The lower quarter: what is above may have waited for another stream.
    launch = int(np.percentile(delays, 25, method="lower")) if len(delays) else 0
    return max(launch, 0), int(np.percentile(gaps, 25, method="lower")) if len(gaps) else 0


def _bound(graph: Graph) -> Graph:
    """The graph with its edges in order, and of those into a node the last to be met marked and as it was measured."""
    position = _positions(graph)
    keep = position[graph.source] < position[graph.target]
    order = np.flatnonzero(keep)[np.argsort(position[graph.target[keep]], kind="stable")]
    source, target, kind, lag = (values[order] for values in (graph.source, graph.target, graph.kind, graph.lag))
    met = graph.time[source] + lag
    # The last to be met; of several the one whose source is latest, which explains the most.
    ranked = np.lexsort((graph.time[source], met, position[target]))
    last = np.append(target[ranked][1:] != target[ranked][:-1], True) if len(ranked) else np.zeros(0, bool)
    binding = np.zeros(len(order), bool)
    binding[ranked[last]] = True
    lag = np.where(binding, graph.time[target] - graph.time[source], lag)
    return replace(graph, source=source, target=target, kind=kind, lag=lag, binding=binding)


def _positions(graph: Graph) -> Ints:
    """An order of all nodes in which edges lead forward: by time, and within a moment by what comes before what."""
    count = len(graph.run.kernels)
    short = graph.run.kernels.end == graph.run.kernels.start
    rank = np.concatenate((np.full(graph.starts, 1), np.full(count, 2), np.where(short, 3, 0)))
    order = np.lexsort((rank, graph.time))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    wrong = np.flatnonzero(position[graph.source] >= position[graph.target])
    moments = np.unique(graph.time[graph.source[wrong]])
    if len(moments):
        _sort_moments(graph, position, moments)
    return position


def _sort_moments(graph: Graph, position: Ints, moments: Ints) -> None:
    """Order the nodes of these moments anew, each moment for itself, by the edges within it."""
    within = np.flatnonzero(graph.time[graph.source] == graph.time[graph.target])
    within = within[np.isin(graph.time[graph.source[within]], moments)]
    by_moment: dict[int, list[tuple[int, int]]] = {}
    for source, target in zip(graph.source[within].tolist(), graph.target[within].tolist(), strict=True):
        by_moment.setdefault(int(graph.time[source]), []).append((source, target))
    for edges in by_moment.values():
        nodes = {node: int(position[node]) for edge in edges for node in edge}
        for place, node in zip(sorted(nodes.values()), _sorted(nodes, edges), strict=True):
            position[node] = place


def _sorted(nodes: dict[int, int], edges: list[tuple[int, int]]) -> list[int]:
    """The nodes such that edges lead forward, else by their places; in a circle, by their places."""
    after: dict[int, list[int]] = {}
    missing = dict.fromkeys(nodes, 0)
    for source, target in edges:
        after.setdefault(source, []).append(target)
        missing[target] += 1
    free = sorted((node for node, count in missing.items() if not count), key=lambda node: -nodes[node])
    found = []
    while free:
        node = free.pop()
        found.append(node)
        for target in after.get(node, ()):
            missing[target] -= 1
            if not missing[target]:
                free.append(target)
    return found + sorted((node for node, count in missing.items() if count > 0), key=nodes.__getitem__)
