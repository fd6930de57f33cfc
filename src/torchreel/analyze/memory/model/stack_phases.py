"""What the frames of a stack say of the phase that it belongs to."""

from __future__ import annotations

import re

import numpy as np

from torchreel.analyze.memory.model.phases import (
    ASIDE,
    BACKWARD,
    CONSTRUCTION,
    FORWARD,
    LOADING,
    MOVING,
    OPTIMIZER,
    OTHER,
    PREPARATION,
    RECOMPUTE,
)
from torchreel.analyze.memory.model.stacks import ENGINE, Stacks
from torchreel.analyze.source.frames import NATIVE, Frame
from torchreel.reel.columns import Ints, Mask

_MODULE_FILE = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\]module\.py$")
_MODULES = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\]")
_PARAMETER_FILE = re.compile(r"[/\\]torch[/\\]nn[/\\]parameter\.py$")
_OPTIMIZER_FILE = re.compile(r"[/\\]torch[/\\]optim[/\\]optimizer\.py$")
_OPTIMIZERS = re.compile(r"[/\\][^/\\]*optim[^/\\]*([/\\]|\.py$)")
_TORCH_OPTIMIZERS = re.compile(r"[/\\]torch[/\\]optim[/\\](?!lr_scheduler)")
_LOADING = re.compile(r"[/\\]torch[/\\]utils[/\\]data[/\\]")

Owner = tuple[str, str]  # the file of a class, and its name with a point where the frames have it


def phase_of_stacks(stacks: Stacks) -> Ints:
    """The phase of each stack. The innermost frame that tells one wins, but all within a backward pass is of it."""
    frames, depth = stacks.frames, np.diff(stacks.starts)
    modules = _owners(stacks, np.array([_is_module_call(frame) for frame in frames], bool), "forward")
    optimizers = _owners(stacks, np.array([_is_optimizer_call(frame) for frame in frames], bool), "step")
    backward, optimizer, forward, loading, construction, moving, preparation = (
        stacks.innermost(np.array(chosen, bool))
        for chosen in (
            [frame.called == "backward" or ENGINE in frame.function for frame in frames],
            [_is_optimizer_call(frame) or _is_optimizer_step(frame) for frame in frames],
            [_is_module_call(frame) or frame.called == "forward" for frame in frames],
            [_LOADING.search(frame.file) is not None or "collate" in frame.called for frame in frames],
            [_constructs(frame, modules) for frame in frames],
            [_moves(frame) for frame in frames],
            [_makes_state(frame, optimizers) for frame in frames],
        )
    )
    phase = np.full(len(stacks), OTHER, np.int64)
    phase[loading < depth] = LOADING
    phase[preparation < depth] = PREPARATION
    phase[construction < depth] = CONSTRUCTION
    phase[moving < depth] = MOVING
    phase[optimizer < depth] = OPTIMIZER
    phase[(forward < depth) & (forward < optimizer) & (forward < np.minimum(construction, moving))] = FORWARD
    inside = backward < depth
    phase[inside] = np.where(forward < backward, RECOMPUTE, BACKWARD)[inside]
    phase[stacks.workspace] = ASIDE
    return phase


def _is_module_call(frame: Frame) -> bool:
    return frame.called in ("_call_impl", "_wrapped_call_impl") and _MODULE_FILE.search(frame.file) is not None


def _is_optimizer_call(frame: Frame) -> bool:
    """The frame of torch that is around every step of an optimizer."""
    return frame.called in ("wrapper", "_use_grad") and _OPTIMIZER_FILE.search(frame.file) is not None


def _is_optimizer_step(frame: Frame) -> bool:
    return frame.called == "step" and "lr_scheduler" not in frame.file and _OPTIMIZERS.search(frame.file) is not None


def _constructs(frame: Frame, modules: set[Owner]) -> bool:
    """Constructors of modules."""
    return frame.called == "__init__" and (_owner(frame) in modules or _MODULES.search(frame.file) is not None)


def _moves(frame: Frame) -> bool:
    """What moves or copies parameters, or gives them their memory late."""
    if frame.called in ("_apply", "convert"):
        return _MODULE_FILE.search(frame.file) is not None
    return frame.called in ("__deepcopy__", "__new__", "materialize") and _PARAMETER_FILE.search(frame.file) is not None


def _makes_state(frame: Frame, optimizers: set[Owner]) -> bool:
    """Constructors of optimizers, and what loads their state."""
    if frame.called not in ("__init__", "load_state_dict"):
        return False
    return _owner(frame) in optimizers or _TORCH_OPTIMIZERS.search(frame.file) is not None


def _owner(frame: Frame) -> Owner:
    return frame.file, frame.function.removesuffix(frame.called)


def _owners(stacks: Stacks, callers: Mask, called: str) -> set[Owner]:
    """The classes whose function of this name is called by one of the chosen frames: so a class is known as a module.

    Where the names have no classes, all of a file are taken for it.
    """
    stack = np.repeat(np.arange(len(stacks)), np.diff(stacks.starts))
    python = stacks.kinds[stacks.frame_numbers] != NATIVE  # frames of the interpreter may stand between two of Python
    frame_numbers, stack = stacks.frame_numbers[python], stack[python]
    calls = callers[frame_numbers]
    inner = frame_numbers[:-1][calls[1:] & ~calls[:-1] & (stack[1:] == stack[:-1])]
    return {_owner(frame) for frame in (stacks.frames[number] for number in np.unique(inner)) if frame.called == called}
