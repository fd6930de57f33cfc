"""The moments of the host that matter to devices, thread by thread, and what joins them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchreel.analyze.gpu.intervals import union
from torchreel.analyze.gpu.model.run import DeviceRun
from torchreel.analyze.gpu.model.timeline import Timeline
from torchreel.analyze.gpu.model.waits import waiting
from torchreel.reel.columns import Ints, Mask, ints

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Marks:
    """Marks by thread, then by time. The rest are pairs of their numbers.

    From `source` to `target` a thread goes on, `elastic` if it only waits on the way. A fork leads to a thread of
    backward, a join from it.
    """

    thread: Ints
    time: Ints
    main: int  # the thread that launches most, or that calls backward there
    launching: frozenset[int]  # threads that launch, and those that call them
    source: Ints
    target: Ints
    elastic: Mask
    fork_source: Ints
    fork_target: Ints
    join_source: Ints
    join_target: Ints

    def __len__(self) -> int:
        return len(self.time)

    def at(self, threads: Ints, times: Ints) -> Ints:
        """The numbers of marks that are known to exist."""
        return _at(self.thread, self.time, threads, times)


@dataclass(frozen=True)
class _Link:
    """Moments of a thread of backward, with those of the thread that calls it that they follow or lead to."""

    callee: int
    caller: int
    fork: tuple[Ints, Ints]  # times of the caller, times of the callee
    join: tuple[Ints, Ints]  # times of the callee, times of the caller
    waits: tuple[Ints, Ints]  # the caller waited from, to


def marks_of(run: DeviceRun) -> Marks:
    """The marks of a process: launches, waits, threads' first and last moments, forks and joins, limits of steps."""
    calls = run.calls
    launches = np.unique(run.kernels.launch[run.kernels.launch >= 0])
    waits = np.flatnonzero(waiting(run))
    main = _main_thread(run, launches)
    callers = calls.callers()
    launching = {main, *np.unique(calls.thread[launches]).tolist()} & set(calls.threads)
    launching |= {callers[thread] for thread in launching if thread in callers}
    # A thread that neither launches nor waits for what is launched decides nothing: it only watches.
    points: dict[int, list[Ints]] = {
        thread: [] for thread in sorted(launching | set(np.unique(calls.thread[waits]).tolist()))
    }
    for rows, times in ((launches, calls.start), (waits, calls.start), (waits, calls.end)):
        for thread in np.unique(calls.thread[rows]):
            points[int(thread)].append(times[rows[calls.thread[rows] == thread]])
    for thread, parts in points.items():
        parts.append(run.timeline(thread).time[[0, -1]] if len(run.timeline(thread).time) else _NONE)
    links = [_link(run, callee, caller) for callee, caller in callers.items() if {callee, caller} <= points.keys()]
    for link in links:
        points[link.callee] += [link.fork[1], link.join[0]]
        points[link.caller] += [link.fork[0], link.join[1], *link.waits]
    if main in points:
        steps = run.rows("steps", ["start_ns", "end_ns"])
        points[main] += [ints(steps, "start_ns", 0), ints(steps, "end_ns", 0)]
    return _joined(run, points, main, frozenset(launching), waits, links)


def _joined(
    run: DeviceRun,
    points: dict[int, list[Ints]],
    main: int,
    launching: frozenset[int],
    waits: Ints,
    links: list[_Link],
) -> Marks:
    calls = run.calls
    times = {thread: np.unique(np.concatenate([*parts, _NONE])) for thread, parts in points.items()}
    thread = np.concatenate([_NONE, *(np.full(len(own), number) for number, own in times.items())])
    time = np.concatenate([_NONE, *times.values()])
    source = np.flatnonzero(thread[1:] == thread[:-1]) if len(thread) else _NONE
    elastic = np.zeros(len(source), bool)
    for number in times:
        here = waits[calls.thread[waits] == number]
        spans = [(calls.start[here], calls.end[here])]
        spans += [link.waits for link in links if link.caller == number]
        if any(link.callee == number for link in links):
            spans.append(_rests(run.timeline(number)))
        of_thread = thread[source] == number
        elastic[of_thread] = _inside(spans, time[source[of_thread]], time[source[of_thread] + 1])

    def placed(number: int, moments: Ints) -> Ints:
        return _at(thread, time, np.full(len(moments), number), moments)

    def numbers(pairs: list[tuple[int, Ints]]) -> Ints:
        return np.concatenate([_NONE, *(placed(number, moments) for number, moments in pairs)])

    return Marks(
        thread=thread,
        time=time,
        main=main,
        launching=launching,
        source=source,
        target=source + 1,
        elastic=elastic,
        fork_source=numbers([(link.caller, link.fork[0]) for link in links]),
        fork_target=numbers([(link.callee, link.fork[1]) for link in links]),
        join_source=numbers([(link.callee, link.join[0]) for link in links]),
        join_target=numbers([(link.caller, link.join[1]) for link in links]),
    )


def _main_thread(run: DeviceRun, launches: Ints) -> int:
    threads = run.calls.thread[launches] if len(launches) else run.calls.thread
    values, counts = np.unique(threads, return_counts=True)
    if not len(values):
        return -1
    callers = run.calls.callers()
    most = int(values[counts.argmax()])
    return callers.get(most, most)


def _link(run: DeviceRun, callee: int, caller: int) -> _Link:
    """Where a thread of backward begins after a rest, and where the other thread goes on after it."""
    inner, outer = run.timeline(callee), run.timeline(caller)
    rest_starts, rest_ends = _rests(inner)
    if not len(inner.time) or not len(outer.time):
        return _Link(callee, caller, (_NONE, _NONE), (_NONE, _NONE), (_NONE, _NONE))
    begins = np.concatenate((inner.time[:1], rest_ends))
    ended = np.concatenate(([np.iinfo(np.int64).min], rest_starts))
    place = np.searchsorted(outer.time, begins, side="right") - 1
    called = outer.time[np.maximum(place, 0)]
    forked = (place >= 0) & (called >= ended)
    ends = np.append(rest_starts, inner.time[-1])
    goes_on = np.searchsorted(outer.time, ends, side="left")
    joined = (goes_on > 0) & (goes_on < len(outer.time))
    # Of several ends before the same moment of the caller, the last.
    joined &= np.append(goes_on[1:] != goes_on[:-1], True)
    after = goes_on[joined]
    return _Link(
        callee,
        caller,
        (called[forked], begins[forked]),
        (ends[joined], outer.time[after]),
        (outer.time[after - 1], outer.time[after]),
    )


def _rests(timeline: Timeline) -> tuple[Ints, Ints]:
    """When a thread has nothing open, between its calls."""
    rest = np.flatnonzero(timeline.row[:-1] < 0)
    return timeline.time[rest], timeline.time[rest + 1]


def _inside(spans: list[tuple[Ints, Ints]], start: Ints, end: Ints) -> Mask:
    """Whether each interval lies in a span."""
    found = np.zeros(len(start), bool)
    for first, last in spans:
        busy = union(first, last)
        if len(busy.start):
            place = np.searchsorted(busy.start, start, side="right") - 1
            found |= (place >= 0) & (busy.end[np.maximum(place, 0)] >= end)
    return found


def _at(thread: Ints, time: Ints, threads: Ints, times: Ints) -> Ints:
    found = np.zeros(len(times), np.int64)
    for number in np.unique(threads):
        begin, end = np.searchsorted(thread, [number, number + 1])
        chosen = threads == number
        found[chosen] = begin + np.searchsorted(time[begin:end], times[chosen])
    return found
