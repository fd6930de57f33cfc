"""Phases: what the program was doing in each step, every nanosecond of it counted once.

What a step's wall time is charged to:

- `data`: waiting for a DataLoader.
- `forward`: calls of modules, and ops that autograd will differentiate.
- `backward`: nodes of autograd's graph, on whatever thread they run.
- `optimizer`: an optimizer's step() and zero_grad().
- `other`: all other ops.
- `no_op`: no op was running.

The phase is that of the outermost call on the main thread that has one; ranges of the user's and Python calls have
none, and are looked into. While the main thread has nothing open, calls of other threads count, backward first.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median, pstdev
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.reel import Reel

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

PHASES = ("data", "forward", "backward", "optimizer", "other", "no_op")

_NONE, _NO_OP = -1, len(PHASES) - 1
_BACKWARD, _OTHER = PHASES.index("backward"), PHASES.index("other")

# The phase of a call by its kind and name: the number of the phase, or -1 where one has to look into it.
_PHASE = """
    CASE
        WHEN starts_with(name, 'enumerate(DataLoader)#') THEN 0
        WHEN starts_with(name, 'Optimizer.step#') OR starts_with(name, 'Optimizer.zero_grad#') THEN 3
        WHEN kind IN ('range', 'python') OR starts_with(name, 'ProfilerStep#') THEN -1
        WHEN kind = 'backward' OR starts_with(name, 'autograd::engine::evaluate_function: ') THEN 2
        WHEN kind = 'module' OR seq IS NOT NULL THEN 1
        ELSE 4
    END"""


@dataclass(frozen=True)
class _Spans:
    """Intervals that do not overlap, in the order of time, each with its phase."""

    starts: Ints
    ends: Ints
    phases: Ints

    def before(self, moments: Ints) -> NDArray[np.int64]:
        """Nanoseconds of each phase before each moment: a row per moment."""
        begun = self.starts.searchsorted(moments)  # spans that begin before the moment
        result = np.zeros((len(moments), len(PHASES)), np.int64)
        for phase in np.unique(self.phases):
            durations = np.where(self.phases == phase, self.ends - self.starts, 0)
            result[:, phase] = np.concatenate([[0], durations.cumsum()])[begun]
        last = np.flatnonzero(begun > 0)
        over = np.maximum(self.ends[begun[last] - 1] - moments[last], 0)
        result[last, self.phases[begun[last] - 1]] -= over
        return result


def phases(reel: Reel) -> pa.Table:
    """A row per step and process: process, step, start_ns, end_ns, whole, and the nanoseconds of each phase.

    They add up to end_ns - start_ns. A process without steps has one row for all of its recording, whose step is null.
    `whole` is false for a first step, which begins with the recording, and for a last one, which ends with it, if
    there are others.
    """
    with opened(reel, ("ops", "steps", "processes", "threads")) as connection:
        rows = [row for process in _processes(reel, connection) for row in _rows(connection, process)]
    names = ["process", "step", "start_ns", "end_ns", "whole", *(f"{phase}_ns" for phase in PHASES)]
    types = [pa.int32(), pa.int32(), pa.int64(), pa.int64(), pa.bool_(), *[pa.int64()] * len(PHASES)]
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table(
        [pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)],
        names,
    )


@dataclass(frozen=True)
class TypicalStep:
    """The average over the whole steps of the process with most of them; its phases add up to its wall time."""

    process: int
    steps: int  # how many; 0: there are no steps, and this is the recording as a whole
    wall_ns: int
    median_ns: int
    fastest_ns: int
    slowest_ns: int
    spread_ns: int  # the standard deviation of the wall time
    phase_ns: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def steps_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of phases() to look at: the whole steps of the process with most of them, else its recording."""
    by_process: dict[tuple[bool, int], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if row["end_ns"] > row["start_ns"]:
            by_process.setdefault((row["step"] is not None, row["process"]), []).append(row)
    if not by_process:
        return []
    # A process with steps before one without; of several the one with most, then the first.
    _, rows = max(by_process.items(), key=lambda item: (item[0][0], len(item[1]), -item[0][1]))
    return [row for row in rows if row["whole"]] or rows


def typical_step(reel: Reel) -> TypicalStep | None:
    """None if nothing was recorded."""
    return average_step(steps_of(phases(reel)))


def average_step(rows: list[dict[str, Any]]) -> TypicalStep | None:
    """Of rows that steps_of() gave; None if there are none."""
    if not rows:
        return None
    walls = [row["end_ns"] - row["start_ns"] for row in rows]
    return TypicalStep(
        process=rows[0]["process"],
        steps=len(rows) if rows[0]["step"] is not None else 0,
        wall_ns=sum(walls) // len(rows),
        median_ns=round(median(walls)),
        fastest_ns=min(walls),
        slowest_ns=max(walls),
        spread_ns=round(pstdev(walls)),
        phase_ns=_average(rows),
    )


def _average(rows: list[dict[str, Any]]) -> dict[str, int]:
    """In whole nanoseconds that add up: what is left over is time in which no op was running."""
    average = {phase: sum(row[f"{phase}_ns"] for row in rows) // len(rows) for phase in PHASES}
    wall = sum(row["end_ns"] - row["start_ns"] for row in rows) // len(rows)
    return {**average, "no_op": average["no_op"] + wall - sum(average.values())}


def _processes(reel: Reel, connection: duckdb.DuckDBPyConnection) -> list[int]:
    """Those with calls: one is enough to know, where DISTINCT would look at all."""
    one = "SELECT 1 FROM ops WHERE process = {} AND kind <> 'backend' LIMIT 1"
    return [part.index for part in reel.parts if connection.sql(one.format(part.index)).fetchall()]


def _rows(connection: duckdb.DuckDBPyConnection, process: int) -> list[tuple[Any, ...]]:
    steps = connection.sql(
        f"SELECT step, start_ns, end_ns FROM steps WHERE process = {process} ORDER BY start_ns, step"
    ).fetchall()
    if not steps:
        begin, end = connection.sql(
            "SELECT least(min(o.start_ns), any_value(p.start_ns)),"
            " greatest(max(o.start_ns + o.dur_ns), any_value(p.end_ns))"
            f" FROM ops AS o LEFT JOIN processes AS p USING (process) WHERE process = {process}"
        ).fetchall()[0]
        steps = [(None, begin, end)]
    spans = _spans(connection, process)
    begins, ends = (np.array([step[column] for step in steps], np.int64) for column in (1, 2))
    spent = spans.before(ends) - spans.before(begins)
    spent[:, _NO_OP] = ends - begins - spent.sum(axis=1)
    some = len(steps) > 2
    return [
        (process, *step, not some or 0 < number < len(steps) - 1, *(int(ns) for ns in spent[number]))
        for number, step in enumerate(steps)
    ]


def _spans(connection: duckdb.DuckDBPyConnection, process: int) -> _Spans:
    main = _main_thread(connection, process)
    spans = _outermost(connection, process, f"thread = {main}")
    others = _outermost(connection, process, f"thread <> {main}")
    backward = others.phases == _BACKWARD
    for phase, chosen in ((_BACKWARD, backward), (_OTHER, ~backward)):
        spans = _filled(spans, *_union(others.starts[chosen], others.ends[chosen]), phase)
    return spans


def _main_thread(connection: duckdb.DuckDBPyConnection, process: int) -> int:
    """The thread that steps are taken on: the busiest with an optimizer's step, else with more than Python calls."""
    threads = connection.sql(f"SELECT DISTINCT thread FROM ops WHERE process = {process}").fetchall()
    if len(threads) == 1:  # most often so, and quicker
        return int(threads[0][0])
    found = connection.sql(
        f"SELECT thread FROM ops WHERE process = {process} AND kind <> 'backend' GROUP BY thread"
        " ORDER BY count(*) FILTER (WHERE starts_with(name, 'Optimizer.step#')) DESC, bool_or(kind <> 'python') DESC,"
        " sum(dur_ns) FILTER (WHERE depth = 0) DESC NULLS LAST, thread LIMIT 1"
    ).fetchall()
    return int(found[0][0]) if found else 0


def _outermost(connection: duckdb.DuckDBPyConnection, process: int, threads: str) -> _Spans:
    """The outermost calls that have a phase, of some threads, level by level; calls without one are looked into."""
    found: list[tuple[Ints, ...]] = []
    level = "depth = 0"
    while True:
        rows = connection.sql(
            f"SELECT id, start_ns, start_ns + dur_ns AS end_ns, {_PHASE} AS phase FROM ops"
            f" WHERE process = {process} AND {level} AND {threads} AND \"async\" IS NOT TRUE AND kind <> 'backend'"
        ).fetchnumpy()
        ids, starts, ends, numbers = (
            np.asarray(rows[name], np.int64) for name in ("id", "start_ns", "end_ns", "phase")
        )
        known = numbers != _NONE
        found.append((starts[known], ends[known], numbers[known]))
        if known.all():
            break
        # Not those one deeper: in a trace, calls that end after the one around them may stand open in between.
        connection.register("looked_into", pa.table({"id": ids[~known]}))
        level = "parent IN (SELECT id FROM looked_into)"
    starts, ends, numbers = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = np.argsort(starts, kind="stable")
    return _Spans(starts[order], ends[order], numbers[order])


def _union(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Intervals in the order of their beginnings, of several threads, as intervals that do not overlap."""
    if not len(starts):
        return starts, ends
    reach = np.maximum.accumulate(ends)
    first = np.concatenate([[True], starts[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return starts[first], reach[last]


def _filled(spans: _Spans, starts: Ints, ends: Ints, phase: int) -> _Spans:
    """The spans, and what of these intervals lies in the gaps between them, as spans of a phase."""
    if not len(starts):
        return spans
    # The gaps: before the first span, between two, after the last.
    gap_starts = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(spans.ends)])
    gap_ends = np.concatenate([spans.starts, [np.iinfo(np.int64).max]])
    first = np.maximum(gap_starts.searchsorted(starts, "right") - 1, 0)  # the gap that an interval begins in or after
    last = gap_ends.searchsorted(ends, "left")
    counts = last - first + 1
    which = np.repeat(np.arange(len(starts)), counts)
    gap = np.arange(len(which)) + np.repeat(first - (counts.cumsum() - counts), counts)
    pieces_start = np.maximum(starts[which], gap_starts[gap])
    pieces_end = np.minimum(ends[which], gap_ends[gap])
    kept = pieces_end > pieces_start
    all_starts = np.concatenate([spans.starts, pieces_start[kept]])
    order = np.argsort(all_starts, kind="stable")
    return _Spans(
        all_starts[order],
        np.concatenate([spans.ends, pieces_end[kept]])[order],
        np.concatenate([spans.phases, np.full(int(kept.sum()), phase, np.int64)])[order],
    )
