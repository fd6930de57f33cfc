"""The phase in which each block was made, by the frames of its stack alone.

A phase is over when a block of another one is made, or when an annotation of an optimizer begins or ends.
"""

from __future__ import annotations

import numpy as np

from torchreel.analyze.memory.model.phases import ASIDE, BACKWARD, FORWARD, OTHER, RECOMPUTE, Phases
from torchreel.analyze.memory.model.run import Run
from torchreel.analyze.memory.model.stack_phases import phase_of_stacks
from torchreel.reel.allocator_history import OLD, AllocatorHistory
from torchreel.reel.columns import Ints, Mask, ints, texts


def phases_by_stacks(run: Run, history: AllocatorHistory, phase: Ints) -> Phases:
    """The phases of a history without calls; `phase` is that of each block."""
    blocks, count = history.blocks, history.events
    order = np.argsort(blocks.start, kind="stable")
    order = order[(blocks.start[order] != OLD) & (phase[order] != ASIDE)]
    start = blocks.start[order]
    kind = np.where(phase[order] == RECOMPUTE, BACKWARD, phase[order])
    changes = np.ones(len(order), bool)
    changes[1:] = kind[1:] != kind[:-1]
    forward = start[_forward_begins(blocks.stack[order], kind, changes)]
    breaks = np.union1d(start[changes], _annotated(run, history))
    over = np.append(breaks, count)[np.searchsorted(breaks, blocks.start, side="right")]
    # What a forward pass keeps lives at least to its last alloc; nothing else tells where no other phase follows.
    breaks = np.union1d(breaks, forward)
    next_pass = np.append(breaks, count)[np.searchsorted(breaks, blocks.start, side="right")]
    last = np.append(start, count)[np.searchsorted(start, next_pass, side="left") - 1]
    over = np.where(phase == FORWARD, last + 1, over)
    old = blocks.start == OLD
    first = kind[0] if len(kind) else OTHER
    over[old] = np.where(phase[old] == first, over[order[0]] if len(order) else count, 0)
    # What lives when an alloc fails was kept for the backward pass that then did not come.
    failed = np.array([oom.position for oom in history.ooms], np.int64)
    return Phases(
        phase=phase,
        over=over,
        call_over=np.full(len(blocks), OLD, np.int64),
        forward_starts=forward,
        backward_starts=np.union1d(start[changes & (kind == BACKWARD)], failed),
        by_calls=False,
    )


def _forward_begins(stack: Ints, kind: Ints, changes: Mask) -> Ints:
    """Which blocks begin a forward pass: the first of a phase, and every other that has the same stack as that."""
    first = np.flatnonzero(changes)[np.cumsum(changes) - 1]
    return np.flatnonzero((kind == FORWARD) & (stack == stack[first]))


def _annotated(run: Run, history: AllocatorHistory) -> Ints:
    """Positions at which the optimizer was called, or had done."""
    if not history.has_times:
        return np.zeros(0, np.int64)
    codes, names = texts(run.annotations, "name")
    chosen = np.array([*(name.startswith("Optimizer.") for name in names), False], bool)[codes]
    return history.positions(ints(run.annotations, "time_ns")[chosen])


def phases_of_blocks(run: Run, history: AllocatorHistory) -> Ints:
    """The phase of each block by the frames of its stack alone."""
    stacks = run.stacks
    row = stacks.rows(history.blocks.stack)
    if not len(stacks):
        return np.full(len(row), OTHER, np.int64)
    phase = np.append(phase_of_stacks(stacks), OTHER)[row]
    # Beside Python's threads, which have frames of Python, those of the autograd engine allocate.
    if stacks.python.any():
        bare = stacks.without_python(history.blocks.stack) & (history.blocks.start != OLD)
        phase[bare & (phase == OTHER)] = BACKWARD
    return phase
