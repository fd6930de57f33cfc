"""How the clocks of two halves of a run stand to each other, found from ranges that both of them saw.

The recorder opens and closes short ranges, each with a name of its own, while a device's trace is taken: some when that
begins, some when it ends. Both halves read their clocks when such a range begins and again when it ends. So by either
clock the range began before it had ended by the other one, which leaves little room for the difference of the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# What the names of these ranges begin with; a number follows that no other range of the process has.
CLOCK_RANGE = "torchreel: clock "

# Marks closer than these together say nothing about how fast the clocks run.
_APART_NS = 100_000


@dataclass(frozen=True)
class Alignment:
    """From a time of the device's half to the host's: time + offset_ns + drift * (time - origin_ns)."""

    origin_ns: int = 0
    offset_ns: float = 0.0
    drift: float = 0.0
    error_ns: int | None = None
    """The most that a time between the first and the last mark can be off, if both clocks run evenly; None if there
    was no mark, and the times are as they were."""
    marks: int = 0
    disagreeing: int = 0
    """Marks that contradict the others: a clock was set, or did not run evenly."""

    def __call__(self, times: np.ndarray) -> np.ndarray:
        return times + np.rint(self.offset_ns + self.drift * (times - self.origin_ns)).astype(np.int64)

    def sentence(self) -> str:
        """What a reader of the times should know."""
        if self.error_ns is None:
            return "Its times are those of the trace: nothing tells how its clock stands to the host's."
        return (
            f"Its times were moved by {self.offset_ns:.0f} ns (drift {self.drift * 1e6:.1f} ppm) to the host's clock, "
            f"with an error of at most {self.error_ns} ns."
        )


def is_clock_range(ops: pa.Table) -> np.ndarray:
    """For each op, whether it is one of the ranges that were opened for the clocks."""
    names = ops["name"].combine_chunks()
    if pa.types.is_dictionary(names.type):
        known = pc.starts_with(names.dictionary.cast(pa.string()), CLOCK_RANGE)
        found = known.take(names.indices)
    else:
        found = pc.starts_with(names, CLOCK_RANGE)
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), dtype=bool)


def align(host: pa.Table, device: pa.Table) -> Alignment:
    """The alignment of two tables of ops, by the clock ranges that both have."""
    ours, theirs = _marks(host), _marks(device)
    names = sorted(ours.keys() & theirs.keys(), key=lambda name: theirs[name][0])
    if not names:
        return Alignment()
    own = np.array([ours[name] for name in names], dtype=np.int64)
    other = np.array([theirs[name] for name in names], dtype=np.int64)
    # ours.start <= theirs.end and theirs.start <= ours.end leave these differences of the clocks.
    least, most = own[:, 0] - other[:, 1], own[:, 1] - other[:, 0]
    times = (other[:, 0] + other[:, 1]) // 2
    middles, halves = (least + most) / 2, (most - least + 1) // 2
    first, last = _anchors(times, halves)
    drift = 0.0
    if times[last] - times[first] >= _APART_NS:
        drift = float((middles[last] - middles[first]) / (times[last] - times[first]))
    else:
        first = last = int(np.argmin(halves))
    origin = int(times[first])
    error = int(max(halves[first], halves[last]))
    found = middles[first] + drift * (times - origin)
    disagreeing = int(np.count_nonzero((found < least - error) | (found > most + error)))
    return Alignment(origin, float(middles[first]), drift, error, len(names), disagreeing)


def _marks(ops: pa.Table) -> dict[str, tuple[int, int]]:
    """Beginning and end of each clock range, by name; a name that is there twice says nothing."""
    rows = ops.select(["name", "start_ns", "dur_ns"]).filter(pa.array(is_clock_range(ops))).to_pylist()
    names = [row["name"] for row in rows]
    return {
        row["name"]: (row["start_ns"], row["start_ns"] + row["dur_ns"]) for row in rows if names.count(row["name"]) == 1
    }


def _anchors(times: np.ndarray, halves: np.ndarray) -> tuple[int, int]:
    """The narrowest mark of the first and of the last quarter of the time."""
    quarter = (times[-1] - times[0]) // 4
    early = np.flatnonzero(times <= times[0] + quarter)
    late = np.flatnonzero(times >= times[-1] - quarter)
    return int(early[np.argmin(halves[early])]), int(late[np.argmin(halves[late])])
