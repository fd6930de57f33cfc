"""Blocks that became parameters: nn.Parameter was called on the tensor that was made last.

`nn.Parameter(torch.empty(...))` makes a block and then, in Parameter.__new__, calls aten::detach. A buffer of a module
is made by the same constructor without that call, so a reel with calls and stacks tells one from the other.
"""

from __future__ import annotations

import re

import numpy as np

from torchreel.analyze.memory.model.run import Run
from torchreel.reel.allocator_history import OLD, AllocatorHistory
from torchreel.reel.columns import NOTHING, Ints, Mask

_PARAMETER_FILE = re.compile(r"[/\\]torch[/\\]nn[/\\]parameter\.py$")


def became_parameters(run: Run, history: AllocatorHistory) -> Mask:
    """Whether each block was made a parameter as soon as it was there."""
    blocks = history.blocks
    result = np.zeros(len(blocks), bool)
    calls = _parameter_calls(run)
    for thread in np.unique(run.calls.thread[calls]):
        mine = np.flatnonzero((blocks.thread == thread) & (blocks.start != OLD))
        mine = mine[np.argsort(blocks.start[mine], kind="stable")]
        moments = history.positions(run.calls.start[calls[run.calls.thread[calls] == thread]])
        before = np.searchsorted(blocks.start[mine], moments, side="left") - 1
        found = mine[before[before >= 0]]
        alive = blocks.end[found] >= moments[before >= 0]
        result[found[alive]] = True
    return result


def _parameter_calls(run: Run) -> Ints:
    """The calls that Parameter.__new__ makes."""
    chosen = [
        frame.function.endswith("Parameter.__new__") and _PARAMETER_FILE.search(frame.file) is not None
        for frame in run.stacks.frames
    ]
    innermost = run.stacks.innermost(np.array(chosen, bool)) == 0
    stack = run.stacks.rows(run.calls.stack)
    makes = np.append(innermost, False)[stack] & (stack != NOTHING)
    return np.flatnonzero(makes & run.calls.named("aten::detach") & (run.calls.parent == NOTHING))
