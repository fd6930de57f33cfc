"""What a function made and left where its next call would find it: in an optimizer, a module or a variable.

A replay runs no Python, so it leaves nothing there. Where the next call would read what was left, a replay in its
place would read the old tensor, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from torchreel.program.model import Binding, Program
from torchreel.tape.capture.names import NamedTensor

Left = tuple[NamedTensor, int]  # with the slot that an op made


def refusal(program: Program, tensors: dict[int, torch.Tensor], left: list[Left], stale: Iterable[int]) -> str:
    """Why the tape cannot be replayed in place of a call, or nothing.

    `stale` are slots that the tape read, that nobody holds any more, and that are no constants: what was in a variable
    before. A parameter that was given other data is the same object still, so that a replay can do the same to it.
    """
    waiting = {slot: (program.slots[slot].dtype, program.slots[slot].sizes) for slot in stale}
    for named, slot in left:
        if named.role == "optimizer":
            return (
                f"The function made {named.name} for the optimizer, which does that at its first step, and the next "
                "step would go on with it: call the function once, and trace a later call."
            )
        record = program.slots[slot]
        old = [old_slot for old_slot, geometry in waiting.items() if geometry == (record.dtype, record.sizes)]
        if not old or named.role == "gradient":
            continue
        if named.role == "parameter" and len(old) == 1:
            _bind(program, named, old[0], slot)
            tensors[old[0]] = named.tensor
            del waiting[old[0]]
            continue
        return (
            f"The function read {named.name}, and left a new tensor there, which its next call would read: write into "
            f"the old one instead, with {named.name}.copy_(...), and trace again."
        )
    return ""


def _bind(program: Program, named: NamedTensor, old: int, new: int) -> None:
    record = program.slots[old]
    record.role, record.name = named.role, named.name
    program.constants.pop(old, None)
    program.bindings.append(Binding("data", old, new))
