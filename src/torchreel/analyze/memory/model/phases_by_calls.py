"""The phase in which each block was made, by the calls that were open then."""

from __future__ import annotations

import numpy as np

from torchreel.analyze.memory.model.calls import Calls
from torchreel.analyze.memory.model.parameters import became_parameters
from torchreel.analyze.memory.model.phases import (
    ASIDE,
    BACKWARD,
    CONSTRUCTION,
    FORWARD,
    LOADING,
    MOVING,
    OPTIMIZER,
    OTHER,
    RECOMPUTE,
    Phases,
)
from torchreel.analyze.memory.model.run import Run
from torchreel.reel.allocator_history import OLD, AllocatorHistory
from torchreel.reel.columns import NOTHING, Ints, rows_of


def phases_by_calls(run: Run, history: AllocatorHistory, by_stack: Ints) -> Phases:
    """The phases of a history whose events know their calls; `by_stack` has what stacks tell of each block."""
    calls = run.calls
    blocks = history.blocks
    row = rows_of(calls.id, blocks.op)
    backward = calls.of_kind("backward") | calls.named("autograd::engine::evaluate_function")
    outer_backward, near_backward = calls.outermost(backward), calls.nearest(backward)
    forward = calls.of_kind("module")
    forward[calls.fwd[calls.fwd != NOTHING]] = True  # a backward call refers to it
    near_forward = calls.nearest(forward)
    near_optimizer = calls.nearest(calls.named("Optimizer.step#"))
    inside = outer_backward != NOTHING

    phase = np.full(len(calls), OTHER, np.int64)
    phase[calls.nearest(calls.named("enumerate(DataLoader)#")) != NOTHING] = LOADING
    phase[near_optimizer != NOTHING] = OPTIMIZER
    phase[near_forward > near_optimizer] = FORWARD
    phase[inside] = np.where(near_forward > near_backward, RECOMPUTE, BACKWARD)[inside]

    starts, ends, pass_of = _passes(calls, outer_backward)
    outer_forward = np.where(inside, calls.outermost(forward & inside), calls.outermost(forward & ~inside))
    over = np.full(len(calls), np.iinfo(np.int64).max, np.int64)
    for code, rows in ((FORWARD, outer_forward), (RECOMPUTE, outer_forward), (OPTIMIZER, near_optimizer)):
        chosen = phase == code
        over[chosen] = calls.end[rows[chosen]]
    chosen = phase == BACKWARD
    over[chosen] = ends[pass_of[outer_backward[chosen]]]

    outer_call = calls.outermost(calls.of_kind("op") & ~backward)
    roots = np.flatnonzero(forward & ~inside & (outer_forward == np.arange(len(calls))))
    known = row != NOTHING
    # What no call tells, the stack may: data and constructors, and a forward pass whose modules were not recorded.
    told_by_stack = by_stack <= (LOADING if calls.of_kind("module").any() else FORWARD)
    phase_of_block = np.where(known & (phase[row] != OTHER), phase[row], np.where(told_by_stack, by_stack, OTHER))
    phase_of_block[by_stack == MOVING] = MOVING  # within a forward pass too, for parameters that wait for their shape
    parameters = became_parameters(run, history)
    if parameters.any():
        phase_of_block[phase_of_block == CONSTRUCTION] = ASIDE  # buffers
        phase_of_block[parameters & ((phase_of_block == ASIDE) | (phase_of_block == OTHER))] = CONSTRUCTION
    return Phases(
        phase=phase_of_block,
        over=np.where(known, history.positions(over)[row], history.events),
        call_over=np.where(known & (outer_call[row] != NOTHING), history.positions(calls.end)[outer_call[row]], OLD),
        forward_starts=np.sort(history.positions(calls.start[roots])),
        backward_starts=np.sort(history.positions(starts)),
        by_calls=True,
    )


def _passes(calls: Calls, outer_backward: Ints) -> tuple[Ints, Ints, Ints]:
    """When each backward pass began and was over, and the pass of each outermost backward call.

    A pass is a row of backward calls on a thread, and it is over when the thread calls something else: its last blocks
    are freed after its last call. A thread that has nothing but backward calls is the engine's; it works for the
    thread that calls most else.
    """
    numbers = np.arange(len(calls))
    rows = np.flatnonzero((outer_backward == NOTHING) | (outer_backward == numbers))
    is_backward = outer_backward[rows] != NOTHING
    thread = calls.thread[rows].copy()
    others = thread[~is_backward]
    if len(others):
        threads, counts = np.unique(others, return_counts=True)
        thread[~np.isin(thread, threads)] = threads[counts.argmax()]
    order = np.lexsort((calls.start[rows], thread))
    rows, thread, is_backward = rows[order], thread[order], is_backward[order]
    changes = np.ones(len(rows), bool)
    changes[1:] = (thread[1:] != thread[:-1]) | (is_backward[1:] != is_backward[:-1])
    first = np.flatnonzero(changes)
    end = np.full(len(first), np.iinfo(np.int64).max, np.int64)
    if len(first) > 1:
        same = thread[first[1:]] == thread[first[:-1]]
        end[:-1] = np.where(same, calls.start[rows[first[1:]]], end[:-1])
    run = np.cumsum(changes) - 1
    pass_of = np.full(len(calls), NOTHING, np.int64)
    pass_of[rows] = run
    return calls.start[rows[first[is_backward[first]]]], end, pass_of
