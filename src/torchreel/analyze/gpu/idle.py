"""Why a device was idle: each idle nanosecond charged to one cause, with the op and the user's line.

A device is idle from its first activity to its last, whenever none runs. A gap ends with an activity K, which a call L
of the host launched. If L began within the gap, the host was late, and the time until L is charged to what the thread
of L was doing:

- `data loader`: it waited for a DataLoader, or made a batch.
- `sync`: when the gap began, it sat in a call that waits for the device (cudaStreamSynchronize, a blocking copy), and
  so had nothing queued. What it did after the wait, up to L, is charged to the wait, too, as without it
  the host would have been ahead.
- `communication`: the same, if the wait belongs to a collective.
- `launch bound`: otherwise. Each nanosecond goes to the innermost op and line that ran then. A thread of backward that
  has nothing to do is late because of the thread that called it: the time goes to that one's calls.

From L on the time belongs to the same cause as what went before, and to L's own op. If K was launched before the gap:

- `communication`: the last activity before the gap was a collective on another stream than K's.
- `queue`: K waited for something that a trace does not show: another stream, or the device itself.

An activity whose launch is not in the trace was launched before the trace began, and so before the gap. The causes add
up to the device's idle time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.intervals import Intervals, difference, union
from torchreel.analyze.gpu.model.calls import distinct
from torchreel.analyze.gpu.model.run import DeviceRun, device_runs
from torchreel.analyze.gpu.model.waits import of_collectives, waiting
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints, Mask

CAUSES = ("sync", "data loader", "communication", "launch bound", "queue")
_SYNC, _LOADER, _COMMUNICATION, _LAUNCH, _QUEUE = range(len(CAUSES))

_SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("device", pa.string()),
        ("cause", pa.string()),
        ("ns", pa.int64()),
        ("op", pa.string()),  # null where no op or range was open
        ("line", pa.string()),  # null where no stack was recorded
    ]
)


@dataclass(frozen=True)
class _Pieces:
    """Parts of gaps: the device, the cause, how long, and the call that is charged, or NOTHING."""

    cause: Ints
    ns: Ints
    call: Ints


def idle_causes(reel: Reel, step: int | None = None, device: str | None = None) -> pa.Table:
    """A row per process, device, cause, op and line, the longest first: process, device, cause, ns, op, line.

    With a step, of the activities that were launched in it. No rows for a reel without kernels, or for devices that
    were never idle.
    """
    rows = []
    for run in device_runs(reel):
        kernels = run.kernels
        chosen = kernels.where(device, step)
        finder = _Causes(run)
        for number in np.unique(kernels.device[chosen]):
            rows += _summed(run, int(number), finder.of(chosen[kernels.device[chosen] == number]))
    rows.sort(key=lambda row: (row[0], row[1], -row[3], row[2], row[4] or "", row[5] or ""))
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    return pa.table([pa.array(list(column), kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)], _SCHEMA)


def _summed(run: DeviceRun, device: int, pieces: _Pieces) -> list[tuple[int, str, str, int, str | None, str | None]]:
    """Pieces of one op and line as one row."""
    keys, place = distinct(pieces.cause, run.operator_numbers[pieces.call], run.line_numbers[pieces.call])
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, place, pieces.ns)
    found: Counter[tuple[str, str | None, str | None]] = Counter()
    for (cause, op, line), ns in zip(keys.tolist(), sums.tolist(), strict=True):
        found[CAUSES[cause], run.calls.names[op] if op >= 0 else None, run.line_text(line)] += ns
    name = run.kernels.devices[device] if device >= 0 else ""
    return [(run.process, name, cause, ns, op, line) for (cause, op, line), ns in found.items()]


class _Causes:
    """Finds the causes of gaps in one process."""

    def __init__(self, run: DeviceRun) -> None:
        self._run = run
        self._callers = run.calls.callers()
        self._waits = np.flatnonzero(waiting(run))
        self._collectives = of_collectives(run)

    def of(self, chosen: Ints) -> _Pieces:
        """The causes of all gaps between these kernels of one device."""
        kernels = self._run.kernels
        start, end = kernels.start[chosen], kernels.end[chosen]
        gaps = difference(union([start.min()], [end.max()]), union(start, end))
        following = chosen[np.searchsorted(start, gaps.end)]  # kernels are in the order of time
        following = self._with_launch(chosen, following)
        launch = kernels.launch[following]
        host = launch >= 0
        host[host] = self._run.calls.start[launch[host]] > gaps.start[host]
        parts = [self._of_device(chosen, gaps, following, launch, ~host)]
        parts += self._of_host(gaps, launch, host)
        return _Pieces(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("cause", "ns", "call")))

    def _with_launch(self, chosen: Ints, following: Ints) -> Ints:
        """Of kernels that begin at the same time, the first whose launch is known."""
        kernels = self._run.kernels
        known = chosen[kernels.launch[chosen] >= 0]
        if not len(known):
            return following
        place = np.minimum(np.searchsorted(kernels.start[known], kernels.start[following]), len(known) - 1)
        same = kernels.start[known[place]] == kernels.start[following]
        return np.where(same, known[place], following)

    def _of_device(self, chosen: Ints, gaps: Intervals, following: Ints, launch: Ints, which: Mask) -> _Pieces:
        """Gaps before kernels that were launched earlier, or of which no launch is known."""
        kernels = self._run.kernels
        cause = np.full(int(which.sum()), _QUEUE)
        before = self._last_before(chosen, gaps.start[which])
        collective = np.array([*(kind == "communication" for kind in kernels.kinds), False], bool)[kernels.kind]
        waited = collective[before] & (kernels.stream[before] != kernels.stream[following[which]])
        cause[waited & (launch[which] >= 0)] = _COMMUNICATION
        call = np.where(launch[which] >= 0, launch[which], kernels.op[following[which]])
        return _Pieces(cause, (gaps.end - gaps.start)[which], call)

    def _last_before(self, chosen: Ints, begins: Ints) -> Ints:
        """The kernel that ended when each gap began."""
        order = chosen[np.argsort(self._run.kernels.end[chosen], kind="stable")]
        place = np.searchsorted(self._run.kernels.end[order], begins, side="right") - 1
        return order[np.maximum(place, 0)]

    def _of_host(self, gaps: Intervals, launch: Ints, which: Mask) -> list[_Pieces]:
        """Gaps in which the launch came too late, thread by thread."""
        calls = self._run.calls
        numbers = np.flatnonzero(which)
        found = []
        for thread in np.unique(calls.thread[launch[numbers]]):
            of_thread = numbers[calls.thread[launch[numbers]] == thread]
            found.append(self._of_thread(int(thread), gaps.start[of_thread], gaps.end[of_thread], launch[of_thread]))
        return found

    def _of_thread(self, thread: int, start: Ints, end: Ints, launch: Ints) -> _Pieces:
        calls = self._run.calls
        until = np.minimum(calls.start[launch], end)
        which, begins, ends, rows = self._run.timeline(thread).pieces(start, until)
        caller = self._callers.get(thread)
        wait = self._wait_at(thread, start)
        if caller is not None:
            which, begins, ends, rows = self._without_rest(caller, which, begins, ends, rows)
            wait = np.where(wait >= 0, wait, self._wait_at(caller, start))
        after = np.where(wait >= 0, np.where(self._collectives[wait], _COMMUNICATION, _SYNC), _LAUNCH)
        loading = (rows >= 0) & self._run.calls.loading[rows]
        cause = np.where(loading, _LOADER, after[which])
        call = np.where(loading | (wait[which] < 0), rows, wait[which])
        late = np.flatnonzero(end > until)
        return _Pieces(
            np.concatenate((cause, after[late])),
            np.concatenate((ends - begins, (end - until)[late])),
            np.concatenate((call, np.where(wait[late] >= 0, wait[late], launch[late]))),
        )

    def _without_rest(
        self, caller: int, which: Ints, begins: Ints, ends: Ints, rows: Ints
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Pieces in which a thread had nothing open become those of the thread that calls it."""
        rest = np.flatnonzero(rows < 0)
        busy = np.flatnonzero(rows >= 0)
        inner, *others = self._run.timeline(caller).pieces(begins[rest], ends[rest])
        parts = ((which[busy], begins[busy], ends[busy], rows[busy]), (which[rest][inner], *others))
        first, second, third, fourth = (np.concatenate(pair) for pair in zip(*parts, strict=True))
        return first, second, third, fourth

    def _wait_at(self, thread: int, moments: Ints) -> Ints:
        """The call of a thread that waited for the device at each moment, having begun before, or NOTHING."""
        calls = self._run.calls
        waits = self._waits[calls.thread[self._waits] == thread]
        if not len(waits):
            return np.full(len(moments), NOTHING)
        waits = waits[np.argsort(calls.start[waits], kind="stable")]
        place = np.searchsorted(calls.start[waits], moments, side="left") - 1
        found = waits[np.maximum(place, 0)]
        return np.where((place >= 0) & (calls.end[found] >= moments), found, NOTHING)
