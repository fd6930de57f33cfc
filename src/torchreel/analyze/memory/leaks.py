"""Leaks: lines whose blocks only grow in number from step to step.

What lives at the end of each step is counted for each line. After the first steps, in which caches and the optimizer's
state are made, a healthy program has the same count again and again, or one that goes up and down. A line leaks if its
count and its bytes rise in nearly every step, to the end, and hardly ever fall.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel.analyze.memory.model.categories import CATEGORIES
from torchreel.analyze.memory.model.device import DeviceMemory
from torchreel.reel.columns import NOTHING, Ints, Mask, rows_of

_WARM_UP = 2  # steps
_FEWEST = 3  # rises that make a habit
_NEARLY = 0.8  # of the steps
_SAMPLES = 256  # steps to look at: of more, every n-th
_BYTES = 256  # a step: a list of losses, scalars, is bookkeeping

FOUND, NONE, NO_STEPS, FEW_STEPS = "found", "none", "no steps", "too few steps"

SCHEMA = pa.schema(
    [
        ("name", pa.string()),  # the line that made the blocks
        ("bytes_per_step", pa.float64()),
        ("blocks_per_step", pa.float64()),
        ("bytes", pa.int64()),  # at the end of the last step
        ("blocks", pa.int64()),
        ("category", pa.string()),  # of most of its bytes
        ("graph", pa.bool_()),  # made by calls that a graph remembers, while gradients were on
        ("one_block", pa.bool_()),  # not more blocks, but one that is made again and larger
    ]
)


@dataclass(frozen=True)
class Leaks:
    """What grows, and over which steps that was seen."""

    verdict: str  # found, none, no steps, too few steps
    steps: int  # that were looked at, after the first ones
    source: str  # what the steps are, in words
    growing: pa.Table


def leaks(memory: DeviceMemory) -> Leaks:
    """The lines that leak on one device, those with most bytes first."""
    steps = memory.steps
    if not len(steps):
        return Leaks(NO_STEPS, 0, "", SCHEMA.empty_table())
    if len(steps) < _WARM_UP + _FEWEST + 1:
        return Leaks(FEW_STEPS, len(steps), steps.source, SCHEMA.empty_table())
    ends = steps.ends[_WARM_UP:]
    stride = -(-len(ends) // _SAMPLES)
    counts, sizes = _levels(memory, ends[::-1][::stride][::-1])
    growing = _grows(counts) & _grows(sizes)
    swelling = ~growing & (counts == counts[:, :1]).all(axis=1) & (np.diff(sizes) > 0).all(axis=1)
    table = _table(memory, counts, sizes, growing | swelling, swelling, stride)
    return Leaks(FOUND if table.num_rows else NONE, len(ends), steps.source, table)


def _levels(memory: DeviceMemory, ends: Ints) -> tuple[Ints, Ints]:
    """Blocks and bytes of each line that live at the end of each step."""
    blocks, labels = memory.history.blocks, memory.labels("stack")
    first = np.searchsorted(ends, blocks.start, side="right")  # the first end after it was made
    last = np.searchsorted(ends, blocks.end, side="right")  # the first end after it was freed
    last[blocks.end >= memory.history.events] = len(ends)
    lives = np.flatnonzero(first < last)
    shape = (len(labels.texts), len(ends) + 1)
    counts, sizes = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    number = labels.number[lives]
    for table, amount in ((counts, 1), (sizes, blocks.size[lives])):
        np.add.at(table, (number, first[lives]), amount)
        np.subtract.at(table, (number, last[lives]), amount)
    return counts.cumsum(axis=1)[:, :-1], sizes.cumsum(axis=1)[:, :-1]


def _grows(levels: Ints) -> Mask:
    """Whether each row rises in nearly every step, at its end as well, and hardly falls."""
    changes = np.diff(levels, axis=1)
    rises, falls = np.maximum(changes, 0).sum(axis=1), -np.minimum(changes, 0).sum(axis=1)
    often = (changes > 0).mean(axis=1) >= _NEARLY
    late = changes[:, -_FEWEST:].sum(axis=1) > 0
    growing: Mask = often & late & (falls <= (1 - _NEARLY) * rises)
    return growing


def _table(memory: DeviceMemory, counts: Ints, sizes: Ints, chosen: Mask, swelling: Mask, stride: int) -> pa.Table:
    steps = stride * (counts.shape[1] - 1)
    per_step = (sizes[:, -1] - sizes[:, 0]) / steps
    rows = [int(n) for n in np.argsort(-per_step, kind="stable") if chosen[n] and per_step[n] >= _BYTES]
    texts = memory.labels("stack").texts
    return pa.table(
        {
            "name": [texts[n] for n in rows],
            "bytes_per_step": [float(per_step[n]) for n in rows],
            "blocks_per_step": [float(counts[n, -1] - counts[n, 0]) / steps for n in rows],
            "bytes": [int(sizes[n, -1]) for n in rows],
            "blocks": [int(counts[n, -1]) for n in rows],
            "category": [_category(memory, n) for n in rows],
            "graph": [_has_graph(memory, n) for n in rows],
            "one_block": [bool(swelling[n]) for n in rows],
        },
        schema=SCHEMA,
    )


def _alive(memory: DeviceMemory, line: int) -> Ints:
    """What a line has alive at the end of the last step."""
    end = int(memory.steps.ends[-1])
    blocks = memory.history.blocks
    return np.flatnonzero((memory.labels("stack").number == line) & (blocks.start < end) & (blocks.end >= end))


def _category(memory: DeviceMemory, line: int) -> str:
    """The category of most of it."""
    alive = _alive(memory, line)
    totals = np.bincount(memory.categories[alive], memory.history.blocks.size[alive], len(CATEGORIES))
    return CATEGORIES[int(totals.argmax())]


def _has_graph(memory: DeviceMemory, line: int) -> bool:
    """Whether a good part of it was made by calls that autograd numbered."""
    calls, blocks, alive = memory.run.calls, memory.history.blocks, _alive(memory, line)
    numbered = calls.nearest(calls.of_kind("op") & (calls.seq != NOTHING)) != NOTHING
    made = np.append(numbered, False)[rows_of(calls.id, blocks.op[alive])]
    return bool(3 * blocks.size[alive][made].sum() >= blocks.size[alive].sum() > 0)
