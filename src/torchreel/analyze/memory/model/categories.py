"""What each block is for: parameter, gradient, optimizer state, activation, input or temporary, else unknown.

What the recorder knew of a block stands. The rest is told by the phase in which a block was made, and by what it
outlived (docs/memory.md has the rules in words). A block of which nothing sure can be said is unknown.
"""

from __future__ import annotations

import numpy as np

from torchreel.analyze.memory.model.phases import (
    BACKWARD,
    CONSTRUCTION,
    FORWARD,
    LOADING,
    MOVING,
    OPTIMIZER,
    OTHER,
    PREPARATION,
    RECOMPUTE,
    Phases,
)
from torchreel.analyze.memory.model.steps import Steps
from torchreel.reel.allocator_history import OLD, AllocatorHistory
from torchreel.reel.columns import NOTHING, Ints, Mask, translate

CATEGORIES = ("parameter", "gradient", "optimizer_state", "activation", "input", "temporary", "unknown")
PARAMETER, GRADIENT, OPTIMIZER_STATE, ACTIVATION, INPUT, TEMPORARY, UNKNOWN = range(len(CATEGORIES))

_SHORT = 2  # of steps, or of passes: what lives longer is not the input of one of them


def categories(history: AllocatorHistory, phases: Phases, steps: Steps) -> Ints:
    """The category of each block, as a number of CATEGORIES."""
    blocks, count = history.blocks, history.events
    forward = _next(phases.forward_starts, blocks.start, count)
    backward = _next(phases.backward_starts, blocks.start, count)
    outlives = blocks.end >= phases.over
    kept = blocks.end >= count
    result = np.full(len(blocks), UNKNOWN, np.int64)

    def decide(phase: int, condition: Mask, category: int) -> None:
        result[(phases.phase == phase) & condition & (result == UNKNOWN)] = category

    always = np.ones(len(blocks), bool)
    result[(blocks.end < phases.call_over) & (blocks.start != OLD)] = TEMPORARY
    decide(OPTIMIZER, outlives, OPTIMIZER_STATE)
    decide(BACKWARD, outlives, GRADIENT)
    decide(RECOMPUTE, outlives, ACTIVATION)
    reaches_forward = (forward < count) & (blocks.end >= forward)
    decide(CONSTRUCTION, kept | reaches_forward, PARAMETER)
    decide(MOVING, kept | reaches_forward, PARAMETER)
    decide(PREPARATION, kept | reaches_forward, OPTIMIZER_STATE)
    # A forward pass that no backward pass follows is one without gradients, or the last of the recording.
    followed = backward < count
    decide(FORWARD, np.where(followed, blocks.end >= backward, outlives | kept), ACTIVATION)
    decide(LOADING, reaches_forward | kept, INPUT)
    if not phases.by_calls:
        # Without calls, the computation of the loss is known by where it stands: between a forward and a backward pass.
        loss = (backward < forward) & followed & _after(phases.forward_starts, blocks.start)
        decide(OTHER, loss & (blocks.end >= backward), ACTIVATION)
        decide(OTHER, loss & ~kept, TEMPORARY)
    decide(OTHER, reaches_forward & _short(history, phases, steps) & (blocks.start != OLD), INPUT)
    decide(OTHER, ~reaches_forward & ~kept & (forward < count) & (blocks.start != OLD), TEMPORARY)
    for phase in (OPTIMIZER, BACKWARD, RECOMPUTE, CONSTRUCTION, MOVING, PREPARATION, FORWARD, LOADING):
        decide(phase, always, TEMPORARY)

    recorded = translate(blocks.category, history.categories, {name: n for n, name in enumerate(CATEGORIES)})
    return np.where(recorded != NOTHING, recorded, result)


def _next(starts: Ints, positions: Ints, otherwise: int) -> Ints:
    """The first of the starts after each position."""
    return np.append(starts, otherwise)[np.searchsorted(starts, positions, side="right")]


def _after(starts: Ints, positions: Ints) -> Mask:
    return np.searchsorted(starts, positions, side="right") > 0


def _short(history: AllocatorHistory, phases: Phases, steps: Steps) -> Mask:
    """Whether each block lives in few steps only, or in few passes where there are no steps."""
    blocks = history.blocks
    if len(steps):
        lived = steps.numbers(blocks.end) - steps.numbers(blocks.start)
    else:
        passes = phases.backward_starts if len(phases.backward_starts) else phases.forward_starts
        lived = np.searchsorted(passes, blocks.end) - np.searchsorted(passes, blocks.start)
    return lived <= _SHORT
