"""How full a device was: the part of its multiprocessors that had a block, over time.

A kernel with 0.5 blocks per multiprocessor fills half of the device while it runs; those of kernels that run at the
same time add up, to 1 at most. It is an estimate: blocks may be spread unevenly, and a block may do nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from torchreel.analyze.gpu.activities import Activities, Floats
from torchreel.reel.columns import Ints


class Filled(NamedTuple):
    """Pieces of time in which the same kernels ran, and which part of the device they filled."""

    start: Ints
    end: Ints
    part: Floats


def filled(own: Activities) -> Filled:
    """The pieces in which at least one kernel ran whose blocks are known."""
    known = ~np.isnan(own.blocks_per_sm) & (own.end > own.start)
    start, end, blocks = own.start[known], own.end[known], own.blocks_per_sm[known]
    limits, place = np.unique(np.concatenate((start, end)), return_inverse=True)
    running = np.cumsum(np.bincount(place, np.concatenate((blocks, -blocks)), len(limits)))[:-1]
    kernels = np.cumsum(np.bincount(place, np.repeat((1, -1), len(start)), len(limits)))[:-1]
    some = kernels > 0.5
    return Filled(limits[:-1][some], limits[1:][some], np.clip(running[some], 0.0, 1.0))


def filled_ns(own: Activities) -> float:
    """The time in which the device was filled, partly filled time counted in part."""
    pieces = filled(own)
    return float(((pieces.end - pieces.start) * pieces.part).sum())
