"""How busy and how full each device was over time, in pieces of equal length.

`busy_percent` is the part of a piece in which a kernel ran, `sm_efficiency_percent` which part of the multiprocessors
had a block: both are what the TensorBoard plug-in drew as counters. Copies and sets are no kernels here. The pieces are
1, 10, 100 ... microseconds long, so that there are at most 100 of them; the last one goes to the end.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.activities import COPY, SET, Activities
from torchreel.analyze.gpu.efficiency import Filled, filled
from torchreel.analyze.gpu.intervals import covered
from torchreel.reel import Reel
from torchreel.reel.columns import Ints

_MOST = 100  # pieces

SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("device", pa.string()),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("busy_percent", pa.float64()),
        ("sm_efficiency_percent", pa.float64()),
    ]
)


def utilisation(reel: Reel, found: Activities, whole: bool = True) -> pa.Table:
    """The pieces of each device: of the whole recording, or from the first of the activities to the last."""
    spans = {
        row["process"]: (row["start_ns"], row["end_ns"])
        for row in reel.table("processes", ["start_ns", "end_ns"]).to_pylist()
        if whole and None not in row.values()
    }
    tables = [SCHEMA.empty_table()]
    for process, device, own in found.by_device():
        begin, end = int(own.start.min()), int(own.end.max())
        first, last = spans.get(process, (begin, end))
        limits = _limits(min(first, begin), max(last, end))
        tables.append(_pieces(process, device, own.take(~np.isin(own.kind, (COPY, SET))), limits))
    return pa.concat_tables(tables)


def _limits(begin: int, end: int) -> Ints:
    """Where pieces begin, and where the last one ends."""
    length = 1000
    while end - begin > _MOST * length:
        length *= 10
    count = max((end - begin) // length, 1)
    return np.append(begin + np.arange(count) * length, end)


def _pieces(process: int, device: str, own: Activities, limits: Ints) -> pa.Table:
    start, end = limits[:-1], limits[1:]
    wall = np.maximum(end - start, 1)
    known = len(own) and not np.all(np.isnan(own.blocks_per_sm))
    full = 100 * np.diff(_filled_until(filled(own), limits)) / wall if known else [None] * len(start)
    arrays = [
        pa.repeat(pa.scalar(process, pa.int32()), len(start)),
        pa.repeat(device, len(start)),
        pa.array(start),
        pa.array(end),
        pa.array(100 * covered(own.busy(), start, end) / wall),
        pa.array(full, pa.float64()),
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _filled_until(pieces: Filled, times: Ints) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """For each time, how long the device was filled before it, partly filled time counted in part."""
    if not len(pieces.start):
        return np.zeros(len(times))
    before = np.concatenate(([0.0], np.cumsum((pieces.end - pieces.start) * pieces.part)))
    place = np.searchsorted(pieces.start, times, side="right") - 1
    inside = (np.minimum(times, pieces.end[place]) - pieces.start[place]) * pieces.part[place]
    return np.where(place >= 0, before[place] + inside, 0.0)
