"""Tensors that a function made of Python's numbers or of NumPy's arrays: no op made them, and each call has new ones.

Such a tensor is a constant of the tape. One that the function writes, or returns, is copied from the constant at each
replay, so that none sees what another has written, and nobody's result changes later.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from torchreel.program.model import Op, Program, Ref, Slot, Tree
from torchreel.program.writes import written_storages

_LIFT = "aten::lift_fresh"  # torch.tensor() and its kin announce what they made by this


def is_held_by_tape_alone(tensor: torch.Tensor) -> bool:
    """Whether nobody else has it. To be called with a tensor that the caller has in a tuple and in a variable."""
    # The tape and the Python object hold the tensor; the object is held by it, the tuple, the variable, and two calls.
    if tensor._use_count() > 2 or sys.getrefcount(tensor) > 5 or tensor.layout != torch.strided:
        return False
    return bool(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) <= 2)


def announced(program: Program) -> set[int]:
    """Slots of tensors that torch itself called new."""
    return {op.args[0].slot for op in program.ops if op.name == _LIFT and isinstance(op.args[0], Ref)}


def renew(program: Program, tensors: dict[int, torch.Tensor], fresh: set[int], start: dict[int, torch.Tensor]) -> str:
    """Have those that are written or returned made anew at each replay; gives why there can be none, or nothing."""
    written, returned = written_storages(program), set(_returned(program.outputs))
    for slot in sorted(fresh):
        record = program.slots[slot]
        if record.storage not in written and slot not in returned:
            continue
        if record.storage in written and record.storage not in start:
            return (
                f"The function writes to a tensor of {record.dtype} {list(record.sizes)} that it made without an op, "
                "and what it held before is not known: make it with torch.tensor(), or trace with hashes=True."
            )
        _make_anew(program, tensors, slot, start.get(record.storage))
    return ""


def _returned(tree: Tree) -> Iterator[int]:
    if isinstance(tree.leaf, Ref):
        yield tree.leaf.slot
    for part in tree.parts:
        yield from _returned(part)


def _make_anew(program: Program, tensors: dict[int, torch.Tensor], slot: int, before: torch.Tensor | None) -> None:
    """The slot becomes one that an op makes: a copy of a constant with the values of the beginning."""
    kept = tensors.pop(slot).detach().clone(memory_format=torch.preserve_format)
    if before is not None:
        whole = before.view(kept.dtype)
        kept = torch.as_strided(whole, kept.shape, kept.stride(), program.slots[slot].offset).clone()
    constant = len(program.slots)
    old = program.slots[slot]
    storage = 1 + max(other.storage for other in program.slots)
    program.slots.append(
        Slot(storage, old.dtype, old.sizes, kept.stride(), role="constant", name=f"constant_{constant}",
             bytes=kept.untyped_storage().nbytes())
    )  # fmt: skip
    tensors[constant] = kept
    program.constants.pop(slot, None)
    program.constants[constant] = kept.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    old.role, old.name, old.requires_grad = "made", "", False
    _insert_copy(program, constant, slot)


def _insert_copy(program: Program, constant: int, slot: int) -> None:
    place = next(place for place, op in enumerate(program.ops) if Ref(slot) in _parts(op))
    first = program.ops[place]
    copy = Op("aten::clone", [Ref(constant), None], [Ref(slot)], first.stack, first.module, thread=first.thread,
              time_ns=first.time_ns, inserted=True)  # fmt: skip
    program.schemas["aten::clone"] = str(torch._C._get_schema("aten::clone", ""))
    insert(program, place, copy)


def _parts(op: Op) -> Iterator[object]:
    for value in op.args:
        yield from value if isinstance(value, list) else [value]


def insert(program: Program, place: int, op: Op) -> None:
    """Put an op before another."""
    program.ops.insert(place, op)
    for other in program.ops:
        if other.forward >= place:
            other.forward += 1
