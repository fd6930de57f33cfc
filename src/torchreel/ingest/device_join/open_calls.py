"""Which call was open on a thread at a moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Calls that are neither operators nor ranges: what they launch belongs to the operator or range around them.
_FRAMES = ("python", "module", "runtime", "driver", "overhead")
NONE = -1


def numbers(column: pa.ChunkedArray) -> np.ndarray:
    """A column of integers, with -1 for null."""
    return np.asarray(pc.fill_null(column.cast(pa.int64()), NONE).to_numpy())


def is_kind(ops: pa.Table, *kinds: str) -> np.ndarray:
    """For each op, whether it is of one of these kinds."""
    found = pc.is_in(ops["kind"].cast(pa.string()), pa.array(kinds, pa.string()))
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)


@dataclass(frozen=True)
class OpenCalls:
    """The calls of a process: rows of `ops`, by thread in the order in which they began."""

    starts: np.ndarray
    ends: np.ndarray
    parents: np.ndarray
    """The row of each call's parent, or -1."""
    is_frame: np.ndarray
    is_range: np.ndarray
    threads: dict[int, np.ndarray]

    @classmethod
    def of(cls, ops: pa.Table) -> OpenCalls:
        ids, starts = numbers(ops["id"]), numbers(ops["start_ns"])
        threads = numbers(ops["thread"])
        order = np.lexsort((ids, starts, threads))
        parts = np.split(order, np.flatnonzero(np.diff(threads[order])) + 1) if len(order) else []
        return cls(
            starts,
            starts + numbers(ops["dur_ns"]),
            rows_of(ids, numbers(ops["parent"])),
            is_kind(ops, *_FRAMES),
            is_kind(ops, "range"),
            {int(threads[part[0]]): part for part in parts},
        )

    def innermost(self, thread: int, times: np.ndarray) -> np.ndarray:
        """The row of the innermost call that was open on the thread at each of these moments, or -1."""
        rows = self.threads.get(thread)
        if rows is None:
            return np.full(len(times), NONE)
        places = np.searchsorted(self.starts[rows], times, side="right") - 1
        found = np.where(places >= 0, rows[np.maximum(places, 0)], NONE)
        return self._up(found, lambda at, which: self.ends[at] <= times[which])

    def launcher(self, calls: np.ndarray) -> np.ndarray:
        """From innermost calls: the innermost operator around each, else the innermost range, else -1."""
        operators = self._up(calls, lambda at, which: self.is_frame[at] | self.is_range[at])
        ranges = self._up(calls, lambda at, which: ~self.is_range[at])
        return np.where(operators != NONE, operators, ranges)

    def _up(self, rows: np.ndarray, passes: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """Go from each row to its parents until one is not passed by; `passes` is asked of rows and of their places."""
        found = rows.copy()
        which = np.flatnonzero(found != NONE)
        while len(which):
            passed = passes(found[which], which)
            which = which[passed]
            found[which] = self.parents[found[which]]
            which = which[found[which] != NONE]
        return found


def rows_of(ids: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The places of the wanted ids among the ids, -1 for those that are not there."""
    if not len(ids):
        return np.full(len(wanted), NONE)
    order = np.argsort(ids, kind="stable")
    places = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    found = order[places]
    return np.where(ids[found] == wanted, found, NONE)
