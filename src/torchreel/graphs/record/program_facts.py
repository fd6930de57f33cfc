"""What the program of a recorded call tells by itself."""

from __future__ import annotations

import functools

import torch

from torchreel.graphs.refusal import RefusedError
from torchreel.program.model import SET_RNG, Program, Ref
from torchreel.program.query.writes import written_storages
from torchreel.tape.capture.captured import Parts


def states_set(program: Program) -> set[str]:
    """Names of the random states that the tape sets by itself, as the generator was found in them."""
    ops = [op for op in program.ops if op.name.startswith(SET_RNG) and op.inserted]
    return {program.slots[arg.slot].name for op in ops for arg in op.args if isinstance(arg, Ref)}


@functools.cache
def is_unsafe(name: str) -> bool:
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    found = getattr(getattr(getattr(torch.ops, space, None), packet, None), overload or "default", None)
    return found is not None and torch.Tag.cudagraph_unsafe in found.tags


def op_index(program: Program, recorded: int) -> int:
    """Where the op stands that was the `recorded`-th of the trace, now that some have been inserted."""
    count = 0
    for index, op in enumerate(program.ops):
        if count >= recorded:
            return index
        count += not op.inserted
    return len(program.ops)


def reads_old_gradients(program: Program) -> bool:
    """Whether a tensor that has no name looks like the gradient that a tensor had before the function cleared it.

    One that the function writes is something else: a bucket of DistributedDataParallel, for example.
    """
    slots = program.slots
    cleared = {
        (slots[one.owner].dtype, slots[one.owner].sizes)
        for one in program.bindings
        if one.kind == "grad" and one.cleared
    }
    unknown = [slot for slot in slots if slot.role == "captured" and slot.name.startswith("captured_")]
    written = written_storages(program)
    unknown = [slot for slot in unknown if slot.storage not in written]
    return any((slot.dtype, slot.sizes) in cleared for slot in unknown)


def held_gradients(parts: Parts) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Gradients that are there when the function begins, each with its tensor."""
    wanted = {
        id(tensor): tensor for slot, tensor in parts.tensors.items() if parts.program.slots[slot].role == "gradient"
    }
    owners = [tensor for tensor in parts.tensors.values() if tensor.is_leaf and tensor.requires_grad]
    held = [(owner, owner.grad) for owner in owners if owner.grad is not None and id(owner.grad) in wanted]
    if len(held) < len(wanted):
        raise RefusedError("finds a gradient of a tensor that it does not use: clear gradients within it")
    return held
