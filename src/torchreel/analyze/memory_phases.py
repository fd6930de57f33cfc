"""The phase in which each block was made, and when that phase was over: forward, backward, the optimizer's step ...

A reel with calls tells by them: a block is made in the calls that were open then. A snapshot has no calls: there the
frames of the block's stack tell, and a phase is over when a block of another one is made, or an annotation begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from torchreel.analyze.memory_calls import Calls
from torchreel.analyze.memory_columns import NOTHING, Ints, ints, rows_of, texts
from torchreel.analyze.memory_history import OLD, History
from torchreel.analyze.memory_run import Run
from torchreel.analyze.memory_stacks import ENGINE, NATIVE, Frame, Stacks

OTHER, CONSTRUCTION, LOADING, FORWARD, RECOMPUTE, BACKWARD, OPTIMIZER, WORKSPACE = range(8)
PHASES = (None, "construction", "data loading", "forward", "backward", "backward", "optimizer", None)

_MODULE_FILE = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\]module\.py$")
_MODULES = re.compile(r"[/\\]torch[/\\]nn[/\\](modules[/\\]|parameter\.py$)")
_PARAMETER_FILE = re.compile(r"[/\\]torch[/\\]nn[/\\]parameter\.py$")
_OPTIMIZER_FILE = re.compile(r"[/\\]torch[/\\]optim[/\\]optimizer\.py$")
_OPTIMIZERS = re.compile(r"[/\\][^/\\]*optim[^/\\]*([/\\]|\.py$)")
_LOADING = re.compile(r"[/\\]torch[/\\]utils[/\\]data[/\\]")


@dataclass(frozen=True)
class Phases:
    """One item per block; positions as in the history."""

    phase: Ints
    over: Ints  # the position at which the phase was over in which the block was made
    call_over: Ints  # the position at which the outermost op was over in which it was made; OLD where that is not known
    forward_starts: Ints  # positions at which forward passes began, sorted
    backward_starts: Ints
    by_calls: bool  # told by calls, not by stacks alone


def phases(run: Run, history: History) -> Phases:
    """The phases of a device's history."""
    by_stack = _phases_of_stacks(run, history)
    if (history.blocks.op != NOTHING).any() and len(run.calls):
        return _by_calls(run.calls, history, by_stack)
    return _by_stacks(run, history, by_stack)


def _positions(history: History, times: Ints) -> Ints:
    return np.searchsorted(history.times, times, side="left")


def _by_calls(calls: Calls, history: History, by_stack: Ints) -> Phases:
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
    return Phases(
        phase=np.where(known & (phase[row] != OTHER), phase[row], np.where(told_by_stack, by_stack, OTHER)),
        over=np.where(known, _positions(history, over)[row], history.events),
        call_over=np.where(known & (outer_call[row] != NOTHING), _positions(history, calls.end)[outer_call[row]], OLD),
        forward_starts=np.sort(_positions(history, calls.start[roots])),
        backward_starts=np.sort(_positions(history, starts)),
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


def _by_stacks(run: Run, history: History, phase: Ints) -> Phases:
    blocks, count = history.blocks, history.events
    order = np.argsort(blocks.start, kind="stable")
    order = order[(blocks.start[order] != OLD) & (phase[order] != WORKSPACE)]
    start = blocks.start[order]
    kind = np.where(phase[order] == RECOMPUTE, BACKWARD, phase[order])
    changes = np.ones(len(order), bool)
    changes[1:] = kind[1:] != kind[:-1]
    breaks = np.union1d(start[changes], _annotated(run, history))
    over = np.append(breaks, count)[np.searchsorted(breaks, blocks.start, side="right")]
    old = blocks.start == OLD
    first = kind[0] if len(kind) else OTHER
    over[old] = np.where(phase[old] == first, over[order[0]] if len(order) else count, 0)
    begins = order[changes]
    # What lives when an alloc fails was kept for the backward pass that then did not come.
    failed = np.array([oom.position for oom in history.ooms], np.int64)
    return Phases(
        phase=phase,
        over=over,
        call_over=np.full(len(blocks), OLD, np.int64),
        forward_starts=blocks.start[begins[kind[changes] == FORWARD]],
        backward_starts=np.union1d(blocks.start[begins[kind[changes] == BACKWARD]], failed),
        by_calls=False,
    )


def _annotated(run: Run, history: History) -> Ints:
    """Positions at which the optimizer was called, or had done."""
    if not history.has_times:
        return np.zeros(0, np.int64)
    codes, names = texts(run.annotations, "name")
    chosen = np.array([*(name.startswith("Optimizer.") for name in names), False], bool)[codes]
    return _positions(history, ints(run.annotations, "time_ns")[chosen])


def _phases_of_stacks(run: Run, history: History) -> Ints:
    """The phase of each block by the frames of its stack alone."""
    stacks = run.stacks
    row = stacks.rows(history.blocks.stack)
    if not len(stacks):
        return np.full(len(row), OTHER, np.int64)
    phase = np.append(_phase_of_stack(stacks), OTHER)[row]
    # Beside Python's threads, which have frames of Python, those of the autograd engine allocate.
    if stacks.python.any():
        bare = np.append(~stacks.python, history.allocs > 0)[row] & (history.blocks.start != OLD)
        phase[bare & (phase == OTHER)] = BACKWARD
    return phase


def _phase_of_stack(stacks: Stacks) -> Ints:
    frames = stacks.frames
    constructors = _constructors(stacks)
    depth = np.diff(stacks.starts)
    backward, optimizer, forward, loading, construction = (
        stacks.innermost(np.array(chosen, bool))
        for chosen in (
            [frame.called == "backward" or ENGINE in frame.function for frame in frames],
            [_is_optimizer(frame) for frame in frames],
            [_is_module_call(frame) or frame.called == "forward" for frame in frames],
            [_LOADING.search(frame.file) is not None or "collate" in frame.called for frame in frames],
            [(frame.file, frame.function) in constructors for frame in frames],
        )
    )
    phase = np.full(len(stacks), OTHER, np.int64)
    phase[loading < depth] = LOADING
    phase[construction < depth] = CONSTRUCTION
    phase[optimizer < depth] = OPTIMIZER
    phase[(forward < depth) & (forward < optimizer) & (forward < construction)] = FORWARD
    inside = backward < depth
    phase[inside] = np.where(forward < backward, RECOMPUTE, BACKWARD)[inside]
    phase[stacks.workspace] = WORKSPACE
    return phase


def _is_module_call(frame: Frame) -> bool:
    return frame.called in ("_call_impl", "_wrapped_call_impl") and _MODULE_FILE.search(frame.file) is not None


def _is_optimizer(frame: Frame) -> bool:
    if frame.kind == NATIVE or "lr_scheduler" in frame.file:
        return False
    if frame.called == "wrapper" and _OPTIMIZER_FILE.search(frame.file):
        return True
    return frame.called == "step" and _OPTIMIZERS.search(frame.file) is not None


def _constructors(stacks: Stacks) -> set[tuple[str, str]]:
    """The functions, by file and name, that make parameters: constructors of modules, and what moves or copies them.

    A class of the user's is a module's if the history has a call of its forward, which torch's Module makes.
    """
    modules = _module_classes(stacks)
    found = set()
    for frame in stacks.frames:
        if frame.called == "__init__":
            owner = (frame.file, frame.function.removesuffix("__init__"))
            makes = owner in modules or _MODULES.search(frame.file) is not None
        elif frame.called in ("_apply", "convert"):
            makes = _MODULE_FILE.search(frame.file) is not None
        else:
            makes = frame.called in ("__deepcopy__", "__new__") and _PARAMETER_FILE.search(frame.file) is not None
        if makes:
            found.add((frame.file, frame.function))
    return found


def _module_classes(stacks: Stacks) -> set[tuple[str, str]]:
    """File and class, where the names have classes, of every function that torch's Module called as its forward."""
    stack = np.repeat(np.arange(len(stacks)), np.diff(stacks.starts))
    python = stacks.kinds[stacks.places] != NATIVE  # frames of the interpreter may stand between two of Python
    places, stack = stacks.places[python], stack[python]
    calls = np.array([_is_module_call(frame) for frame in stacks.frames], bool)[places]
    called = calls[1:] & ~calls[:-1] & (stack[1:] == stack[:-1])
    frames = [stacks.frames[place] for place in np.unique(places[:-1][called])]
    return {(frame.file, frame.function.removesuffix("forward")) for frame in frames if frame.called == "forward"}
