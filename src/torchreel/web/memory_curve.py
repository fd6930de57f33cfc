"""Memory over time, as the timeline and the overview draw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.reel import Reel
from torchreel.reel.reel import Process
from torchreel.reel.row_count import rows_in
from torchreel.reel.tables import ALLOCS
from torchreel.web.calls import dictionary
from torchreel.web.growing_array import GrowingArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """Memory over time: the total after each event, in the order of time."""

    times: NDArray[np.int64]
    totals: NDArray[np.int64]

    def extremes(self, begin: int, step: int, width: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The least and the most in each of `width` pixels: what was there when it began counts, too."""
        edges = begin + step * np.arange(width + 1, dtype=np.int64)
        before = self.times.searchsorted(edges)
        low = np.maximum(before[:-1] - 1, 0)
        high = np.maximum(before[1:], low + 1)
        last = len(self.totals) - 1
        pairs = np.minimum(np.stack([low, high], 1), last).ravel()
        reaches_end = high > last  # where numpy leaves out the last total
        least, most = (
            np.where(reaches_end, extreme(found, self.totals[last]), found)
            for extreme in (np.minimum, np.maximum)
            for found in (extreme.reduceat(self.totals, pairs)[::2],)
        )
        is_before = before[1:] == 0  # nothing had happened yet
        return np.where(is_before, 0, least).astype(np.float32), np.where(is_before, 0, most).astype(np.float32)


def curve_of(reel: Reel, origin: int, process: int, device: str | None) -> Curve:
    """The memory of one device of a process."""
    (part,) = (part for part in reel.parts if part.index == process)
    # Row by row DuckDB takes three times as long as Arrow.
    curve = _in_order(part, device or "") or _sorted(part, device or "")
    return Curve(curve.times - origin, curve.totals)


@dataclass(frozen=True)
class Outline:
    """The same curve as a strip shows it."""

    most: list[int]
    """The most in each part of the time, with what was there when the part began."""
    peak: int
    peak_at: int


def outline_of(reel: Reel, origin: int, end: int, points: int) -> Outline | None:
    """The curve in so many parts of equal length, without reading it into memory."""
    with opened(reel, ("allocs",)) as connection:
        rows = connection.sql(
            f"SELECT process, device, least((time_ns - {origin}) * {points} // {end}, {points - 1}) AS part,"
            " max(total), arg_max(total, id), min(time_ns), max(time_ns)"
            " FROM allocs WHERE time_ns IS NOT NULL AND total IS NOT NULL GROUP BY ALL ORDER BY part"
        ).fetchall()
        if not rows:
            return None
        process, device, _, peak, _, first, last = min(rows, key=lambda row: (-row[3], row[0], row[1] or "", row[2]))
        ((peak_at,),) = connection.execute(
            f"SELECT min(time_ns) FROM allocs WHERE time_ns BETWEEN {first} AND {last} AND process = {process}"
            f" AND device IS NOT DISTINCT FROM $1 AND total = {peak}",
            [device],
        ).fetchall()
    found = {row[2]: (row[3], row[4]) for row in rows if row[:2] == (process, device)}
    most, level = [], 0
    for part in range(points):
        highest, after = found.get(part, (level, level))
        most.append(max(level, highest))
        level = after
    return Outline(most, peak, peak_at - origin)


_COLUMNS = ["id", "device", "time_ns", "total"]


def _in_order(part: Process, device: str) -> Curve | None:
    """The curve of events that are in the file as they happened; None if they are not."""
    times, totals = GrowingArray(np.int64), GrowingArray(np.int64)
    last_id = last_time = np.iinfo(np.int64).min
    rows = rows_in(part, ALLOCS)
    for number, table in enumerate(part.batches(ALLOCS, _COLUMNS)):
        found = _of_device(table, device)
        if not len(found[0]):
            continue
        ids, moments, levels = found
        if ids[0] < last_id or moments[0] < last_time or any((each[1:] < each[:-1]).any() for each in (ids, moments)):
            return None
        last_id, last_time = ids[-1], moments[-1]
        growth = 1.0 if number else max(1.0, rows / len(ids))
        times.add(moments, growth)
        totals.add(levels, growth)
    return Curve(times.values, totals.values)


def _sorted(part: Process, device: str) -> Curve:
    ids, times, totals = _of_device(part.table(ALLOCS, _COLUMNS), device)
    order = np.lexsort((ids, times))
    return Curve(times[order], totals[order])


def _of_device(table: pa.Table, device: str) -> tuple[Ints, Ints, Ints]:
    """The ids, times and totals of one device's events that have both."""
    numbers, names = dictionary(table, "device")
    wanted = np.array([name == device for name in names])[numbers]
    for name in ("time_ns", "total"):
        if table[name].null_count:
            wanted &= table[name].is_valid().to_numpy()
    ids, times, totals = (table[name].to_numpy() for name in ("id", "time_ns", "total"))
    if not wanted.all():
        ids, times, totals = (column[wanted].astype(np.int64) for column in (ids, times, totals))
    return ids, times, totals
