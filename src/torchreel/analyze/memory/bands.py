"""Memory over time by who holds it: the level of a part of the history, cut into bands.

The part is cut into cells, such as the pixels of a screen. Each cell is looked at after the one event at which most was
allocated in it. So the bands of a cell add up to a level that was there, and no peak is missed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from torchreel.analyze.memory.model.categories import CATEGORIES
from torchreel.analyze.memory.model.device import DeviceMemory
from torchreel.reel.columns import Ints


@dataclass(frozen=True)
class Bands:
    """One row per band, one column per cell."""

    names: list[str]
    category: list[str]  # of most of its bytes
    bytes: Ints
    rest: Ints  # of all that is in no band
    others: int  # how many groups the rest is


@dataclass(frozen=True)
class BlocksInView:
    """The largest blocks that live in any cell, each with its cells: first <= cell < last."""

    block: Ints  # numbers of blocks, in the order in which they were made
    first: Ints
    last: Ints
    rest: Ints  # bytes of all other blocks, by cell
    others: int  # how many these are


def tops(level: Ints, edges: Ints) -> Ints:
    """The position, for each cell, of the event after which most was there; `edges` are positions, one more than cells.

    A cell has the events from its edge up to the next one, and the level that it begins with.
    """
    return np.array(
        [a + int(level[a : b + 1].argmax()) - 1 for a, b in itertools.pairwise(edges.tolist())], dtype=np.int64
    )


def bands(memory: DeviceMemory, by: str, positions: Ints, most: int) -> Bands:
    """The groups that hold most in these cells, and what the others hold together."""
    blocks, labels = memory.history.blocks, memory.labels(by)
    first, last = _cells(memory, positions)
    lives = np.flatnonzero(first < last)
    number, size = labels.number[lives], blocks.size[lives]
    weight = size.astype(np.float64) * (last - first)[lives]
    count = len(labels.texts)
    totals = np.bincount(number, weight, count)
    groups = np.flatnonzero(np.bincount(number, minlength=count) > 0)
    chosen = groups[np.argsort(-totals[groups], kind="stable")][:most]
    row = np.full(count, len(chosen), np.int64)
    row[chosen] = np.arange(len(chosen))
    levels = _levels(row[number], size, first[lives], last[lives], len(chosen) + 1, len(positions))
    shares = np.zeros((len(chosen) + 1, len(CATEGORIES)))
    np.add.at(shares, (row[number], memory.categories[lives]), weight)
    return Bands(
        names=[labels.texts[n] for n in chosen],
        category=[CATEGORIES[int(share.argmax())] for share in shares[:-1]],
        bytes=levels[:-1],
        rest=levels[-1],
        others=len(groups) - len(chosen),
    )


def blocks_in_view(memory: DeviceMemory, positions: Ints, most: int) -> BlocksInView:
    """The largest blocks that live after any of these events."""
    blocks = memory.history.blocks
    first, last = _cells(memory, positions)
    lives = np.flatnonzero(first < last)
    size = blocks.size[lives]
    chosen = np.arange(len(lives))
    if len(lives) > most:
        chosen = np.argpartition(-size, most - 1)[:most]
    is_chosen = np.zeros(len(lives), bool)
    is_chosen[chosen] = True
    rest = lives[~is_chosen]
    shown = lives[is_chosen]
    # Blocks that stay come first, so that they keep their place below those that come and go.
    shown = shown[np.lexsort((-blocks.end[shown], blocks.start[shown]))]
    zeros = np.zeros(len(rest), np.int64)
    levels = _levels(zeros, blocks.size[rest], first[rest], last[rest], 1, len(positions))
    return BlocksInView(shown, first[shown], last[shown], levels[0], len(rest))


def _cells(memory: DeviceMemory, positions: Ints) -> tuple[Ints, Ints]:
    """The first cell in which each block lives, and the first after these."""
    blocks = memory.history.blocks
    return np.searchsorted(positions, blocks.start, side="left"), np.searchsorted(positions, blocks.end, side="left")


def _levels(row: Ints, size: Ints, first: Ints, last: Ints, rows: int, cells: int) -> Ints:
    width = cells + 1
    changes = np.zeros(rows * width, np.int64)
    np.add.at(changes, row * width + first, size)
    np.subtract.at(changes, row * width + last, size)
    return np.cumsum(changes.reshape(rows, width), axis=1)[:, :cells]
