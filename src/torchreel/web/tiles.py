"""Tiles: the timeline in pieces of 1,024 pixels, as flat arrays that the page reads without parsing.

A tile of level L has pixels of 2**L nanoseconds. Tile i begins i * 1024 * 2**L nanoseconds after the reel's beginning.
Its bytes, all little-endian:

    uint32   version, spans, calls, points       a span is one lane's share of the calls
    float64  id[calls]                           ids of ops, exact below 2**53
    uint32   lane[spans], count[spans]           the lane's number in /api/about, how many calls of it follow
    float32  x[calls], w[calls]                  where a call begins and how wide it is, in pixels of the tile
    uint32   calls[calls]                        how many calls a mark stands for
    float32  low[points], high[points]           the least and the most memory in each pixel, in bytes
    uint16   label[calls]                        the label's number in /api/about
    uint8    cover[calls]                        how busy the pixel is, 0 to 255
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torchreel.web.lanes import Lane
    from torchreel.web.memory_curve import Curve

VERSION = 1
WIDTH = 1024
LEVELS = 41


def tile(lanes: Sequence[tuple[int, Lane]], curve: Curve | None, level: int, index: int) -> bytes:
    """The bytes of a tile: of these lanes, each with its number."""
    begin, step = index * (WIDTH << level), 1 << level
    spans, parts = [], []
    for number, lane in lanes:
        marks = lane.marks(begin, step, WIDTH)
        if marks is not None:
            x = ((lane.starts[marks.at] - begin) / step).astype(np.float32)
            w = (lane.durations(marks.at) / step).astype(np.float32)
            spans.append((number, len(marks.at)))
            parts.append(
                (lane.ids[marks.at].astype(np.float64), x, w, marks.counts, lane.labels[marks.at], marks.cover)
            )
    kinds = (np.float64, np.float32, np.float32, np.uint32, np.uint16, np.uint8)
    columns = list(zip(*parts, strict=True)) if parts else [()] * len(kinds)
    ids, x, w, counts, labels, cover = (
        np.concatenate(column) if column else np.empty(0, kind) for column, kind in zip(columns, kinds, strict=True)
    )
    low, high = curve.extremes(begin, step, WIDTH) if curve is not None else (np.empty(0, np.float32),) * 2
    head = np.array([VERSION, len(spans), len(ids), len(low)], np.uint32)
    shares = np.array(spans, np.uint32).reshape(-1, 2)
    arrays = (head, ids, shares[:, 0], shares[:, 1], x, w, counts, low, high, labels, cover)
    return b"".join(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays)
