"""What if: how long a run would take if a kernel, an op, a module or the data loader were n times faster.

The graph of the run (model/graph.py) is replayed with other lags. A pattern is a regular expression that is searched
for in names:

- of kernels: their time on the device is divided by the factor;
- of calls (ops, ranges, Python functions): the time of the host in them, and of all kernels that they launched; of
  calls of the device's API, such as cudaLaunchKernel, the time of the host alone;
- of modules by their paths: the same for what runs in them, and the kernels of their backward;
- `data loader` finds the time in DataLoaders.

`kernel:`, `op:` and `module:` before the expression look at these alone. Waits are not work: they end when what is
waited for does. What the trace does not show stays as it was: contention between kernels, other ranks, dependencies
between streams that the graph does not know.

With nothing changed, the replay must give the recorded end of every kernel to the nanosecond. If not, nothing is said
but by how much it is off.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from torchreel.analyze.gpu.critical_path import NO_EVENTS
from torchreel.analyze.gpu.model.calls import API
from torchreel.analyze.gpu.model.graph import HOST, RUN, Graph, graph_of
from torchreel.analyze.gpu.model.run import NO_KERNELS, DeviceRun, device_runs
from torchreel.analyze.gpu.model.window import window_of
from torchreel.errors import OptionError
from torchreel.reel import Reel
from torchreel.reel.columns import Ints, Mask, ints

Floats = npt.NDArray[np.float64]

_KINDS = ("kernel", "op", "module")
LOADER = "data loader"


@dataclass(frozen=True)
class Change:
    """A pattern, and how many times faster what it finds becomes."""

    pattern: str
    factor: float

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the pattern is searched for in."""
        kind, colon, _ = self.pattern.partition(":")
        return (kind,) if colon and kind in _KINDS else _KINDS

    @property
    def expression(self) -> re.Pattern[str]:
        kind, colon, rest = self.pattern.partition(":")
        text = rest if colon and kind in _KINDS else self.pattern
        try:
            return re.compile(text)
        except re.error as error:
            raise OptionError(f"{text!r} is not a regular expression: {error}.") from None


@dataclass(frozen=True)
class Outcome:
    """What became of one process."""

    process: int
    kernels: int  # how many the patterns found
    calls: int
    before_ns: int  # the window as it was recorded
    after_ns: int
    refused: str | None  # why nothing is said; the times are then both the recorded one

    @property
    def saved_ns(self) -> int:
        return self.before_ns - self.after_ns

    @property
    def percent(self) -> float:
        """Of the recorded time."""
        return 100.0 * self.saved_ns / self.before_ns if self.before_ns else 0.0

    @property
    def speedup(self) -> float:
        return self.before_ns / self.after_ns if self.after_ns else math.inf

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "saved_ns": self.saved_ns, "percent": self.percent, "speedup": self.speedup}


@dataclass(frozen=True)
class WhatIf:
    """The outcome for each process, and notes on what the answer cannot know."""

    changes: tuple[Change, ...]
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `gpu --format json` prints them."""
        return {
            "changes": [asdict(change) for change in self.changes],
            "outcomes": [outcome.as_dict() for outcome in self.outcomes],
            "notes": list(self.notes),
        }


def parse_change(text: str) -> tuple[str, float]:
    """REGEX=2x as a pattern and a factor, for `--if`; the x may be left out. An OptionError says what is wrong."""
    pattern, equals, number = text.rpartition("=")
    try:
        factor = float(number.strip().removesuffix("x"))
    except ValueError:
        factor = math.nan
    if not equals or not pattern or not math.isfinite(factor):
        raise OptionError(f"{text!r} cannot be read: give an expression and how many times faster, as in 'gemm=2x'.")
    return pattern, factor


def what_if(reel: Reel, changes: Sequence[tuple[str, float]], step: int | None = None) -> WhatIf:
    """Replay each process with changes: pairs of a pattern and a factor (2.0: twice as fast; 0.5: half as fast).

    The time is that of the whole run, or of a step until the last kernel that was launched in it.
    """
    wanted = tuple(Change(pattern, float(factor)) for pattern, factor in changes)
    for change in wanted:
        if not (math.isfinite(change.factor) and change.factor > 0):
            raise OptionError(f"Nothing can become {change.factor:g} times faster: give a number above 0.")
        change.expression  # noqa: B018 - a wrong one is said at once
    outcomes: list[Outcome] = []
    notes: list[str] = []
    found = False
    for run in device_runs(reel):
        found = True
        graph = graph_of(run)
        if not graph.knows_events and graph.streams > 1 and NO_EVENTS not in notes:
            notes.append(NO_EVENTS)
        outcome = _outcome(graph, wanted, step)
        if outcome is None:
            notes.append(f"Process {run.process} has no step {step}.")
        else:
            outcomes.append(outcome)
    if not found:
        notes.append(NO_KERNELS)
    elif outcomes and not any(outcome.kernels or outcome.calls for outcome in outcomes):
        patterns = " and ".join(repr(change.pattern) for change in wanted)
        notes.append(f"No kernel, call or module has a name in which {patterns} is found.")
    return WhatIf(wanted, tuple(outcomes), tuple(notes))


def _outcome(graph: Graph, changes: Sequence[Change], step: int | None) -> Outcome | None:
    window = window_of(graph, step)
    if window is None:
        return None
    run = graph.run
    kernels, calls = np.ones(len(run.kernels)), np.ones(len(run.calls))
    found = np.zeros(len(kernels), bool), np.zeros(len(calls), bool)
    for change in changes:
        of_kernels, of_calls = _found(run, change)
        found = found[0] | of_kernels, found[1] | of_calls
        kernels[of_kernels] *= change.factor
        calls[of_calls] *= change.factor
    counts = int(found[0].sum()), int(found[1].sum())
    refused = refusal(graph)
    if refused is not None:
        return Outcome(run.process, *counts, window.ns, window.ns, refused)
    times = graph.replayed(scaled_lags(graph, kernels, calls))
    start = int(times[window.lasts].min()) if window.first is None else int(times[window.first])
    return Outcome(run.process, *counts, window.ns, int(times[window.lasts].max()) - start, None)


def refusal(graph: Graph) -> str | None:
    """Why a replay of this graph cannot be trusted: how far it is off if nothing is changed; None if it is exact."""
    off = np.abs(graph.replayed(graph.lag) - graph.time)[graph.ends :]
    wrong = int((off > 0).sum())
    if not wrong:
        return None
    return (
        f"The replay does not give what was recorded: {wrong:,} of {len(off):,} kernels end at another time, "
        f"by up to {int(off.max()):,} ns."
    )


def _found(run: DeviceRun, change: Change) -> tuple[Mask, Mask]:
    """Which kernels and which calls a pattern finds: with a call all in it, and all kernels that it launched."""
    search, kinds = change.expression.search, change.kinds
    calls = np.zeros(len(run.calls), bool)
    if "op" in kinds:
        calls |= run.calls.named(search)
        if search(LOADER):
            calls |= run.calls.loading
    modules = _modules(run, search) if "module" in kinds else np.zeros(0, np.int64)
    if "module" in kinds:
        calls |= run.calls.of_kind(frozenset({"module"})) & run.calls.named(search)
        calls |= np.isin(run.calls.module, modules)
    # A call of the device's API that is faster does not make faster what it launches.
    inside = np.append(run.calls.nearest(calls & ~run.calls.of_kind(API)) >= 0, False)
    calls = run.calls.nearest(calls) >= 0
    kernels = inside[run.kernels.launch] | inside[run.kernels.op] | np.isin(run.kernels.module, modules)
    if "kernel" in kinds:
        kernels |= np.array([*(search(name) is not None for name in run.kernels.names), False], bool)[run.kernels.name]
    return kernels, calls


def _modules(run: DeviceRun, search: Any) -> Ints:
    """The ids of modules whose path is found."""
    table = run.rows("modules", ["id", "path"])
    paths = table["path"].to_pylist()
    chosen: Ints = ints(table, "id")[np.array([bool(search(path or "")) for path in paths], bool)]
    return chosen


def scaled_lags(graph: Graph, kernels: Floats, calls: Floats) -> Ints:
    """The lags of all edges if kernels and calls are so many times faster."""
    lag = graph.lag.copy()
    running = np.flatnonzero(graph.kind == RUN)
    factor = kernels[graph.target[running] - graph.ends]
    lag[running] = np.where(factor == 1, lag[running], np.rint(lag[running] / factor).astype(np.int64))
    if (calls != 1).any():
        # A wait and a rest are no work. They end when something else does, or last as long as they did.
        waits = np.zeros(len(graph.marks), bool)
        waits[graph.marks.source[graph.marks.elastic]] = True
        working = np.flatnonzero(graph.kind == HOST)
        working = working[~waits[graph.source[working]]]
        source, target = graph.source[working], graph.target[working]
        lag[working] -= np.rint(_saved(graph, calls, target) - _saved(graph, calls, source)).astype(np.int64)
    return lag


def _saved(graph: Graph, calls: Floats, marks: Ints) -> Floats:
    """How much the thread of each mark has saved by then."""
    result = np.zeros(len(marks))
    for thread in np.unique(graph.marks.thread[marks]):
        timeline = graph.run.timeline(int(thread))
        if len(timeline.time) < 2:
            continue
        share = 1 - 1 / np.append(calls, 1.0)[timeline.row[:-1]]
        saved = np.concatenate(([0.0], np.cumsum(np.diff(timeline.time) * share)))
        own = graph.marks.thread[marks] == thread
        since = graph.marks.time[marks[own]] - timeline.time[0]
        result[own] = np.interp(since, timeline.time - timeline.time[0], saved)
    return result
