"""Phases: what the program was doing when a block was made, and when it had done with that.

A reel with calls tells by them (memory_phases_by_calls). A snapshot has no calls: there the frames of the block's stack
tell (memory_phases_by_stacks).
"""

from __future__ import annotations

from dataclasses import dataclass

from torchreel.reel.columns import Ints

# A module's construction, the moving of its parameters, an optimizer's preparation, the loading of data ... Recomputing
# is forward within backward. Aside is what belongs to none: workspaces of libraries, buffers of modules.
OTHER, CONSTRUCTION, MOVING, PREPARATION, LOADING, FORWARD, RECOMPUTE, BACKWARD, OPTIMIZER, ASIDE = range(10)
_MAKING = ("construction",) * 3
PHASES = (None, *_MAKING, "data loading", "forward", "backward", "backward", "optimizer", None)


@dataclass(frozen=True)
class Phases:
    """One item per block; positions as in the history."""

    phase: Ints
    over: Ints  # the position at which the phase was over in which the block was made
    call_over: Ints  # the position at which the outermost op was over in which it was made; OLD where that is not known
    forward_starts: Ints  # positions at which forward passes began, sorted
    backward_starts: Ints
    by_calls: bool  # told by calls, not by stacks alone
