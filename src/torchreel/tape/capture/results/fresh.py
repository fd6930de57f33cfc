"""Tensors that a function made of Python's numbers or of NumPy's arrays: no op made them, and each call has new ones.

Such a tensor is a constant of the tape. One that the function writes, or returns, is copied from the constant at each
replay, so that none sees what another has written, and nobody's result changes later.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator

import torch

from torchreel._torch.dispatch import find_schema
from torchreel._torch.tensors import storage_address, storage_use_count, tensor_use_count
from torchreel.program.model import Op, Program, Ref, Slot, StorageOf, Tree
from torchreel.program.query.writes import written_storages

_SETTERS = ("aten::copy_", "aten::fill_", "aten::zero_")
_LIFT = "aten::lift_fresh"  # torch.tensor() and its kin announce what they made by this


def is_held_by_tape_alone(tensor: torch.Tensor) -> bool:
    """Whether nobody else has it. To be called with a tensor that the caller has in a tuple and in a variable."""
    # The tape and the Python object hold the tensor; the object is held by it, the tuple, the variable, and two calls.
    if tensor_use_count(tensor) > 2 or sys.getrefcount(tensor) > 5 or tensor.layout != torch.strided:
        return False
    return bool(storage_use_count(storage_address(tensor.untyped_storage())) <= 2)


def announced(program: Program) -> set[int]:
    """Slots of tensors that torch itself called new."""
    return {op.args[0].slot for op in program.ops if op.name == _LIFT and isinstance(op.args[0], Ref)}


def renew(
    program: Program,
    tensors: dict[int, torch.Tensor],
    fresh: set[int],
    start: dict[int, torch.Tensor],
    left: Iterable[int] = (),
) -> str:
    """Have those that are written, returned or left made anew at each replay; gives why there can be none, or nothing.

    So are those that somebody has a view of afterwards: what he writes to it is not for the next replay to see.
    """
    written = written_storages(program)
    returned = {program.slots[slot].storage for slot in [*_returned(program.outputs), *left]}
    for slot in sorted(fresh):
        record = program.slots[slot]
        if record.storage not in written and record.storage not in returned:
            continue
        if record.storage in written and record.storage not in start and not _is_set_first(program, slot):
            return (
                f"The function writes to a tensor of {record.dtype} {list(record.sizes)} that it made without an op, "
                "and what it held before is not known: make it with torch.tensor(), or trace with hashes=True."
            )
        _make_anew(program, tensors, slot, start.get(record.storage))
    return ""


def _is_set_first(program: Program, slot: int) -> bool:
    """Whether its initial values are never read: it is empty, or the first op writes all of it."""
    record = program.slots[slot]
    if 0 in record.sizes:
        return True
    first = next(op for op in program.ops if Ref(slot) in _parts(op))  # its storage may be given away before
    whole = math.prod(record.sizes) * getattr(torch, record.dtype).itemsize == record.bytes
    return whole and first.name.partition(".")[0] in _SETTERS and first.args[0] == Ref(slot)


def _returned(tree: Tree) -> Iterator[int]:
    if isinstance(tree.leaf, Ref):
        yield tree.leaf.slot
    for part in tree.parts:
        yield from _returned(part)


def _make_anew(program: Program, tensors: dict[int, torch.Tensor], slot: int, before: torch.Tensor | None) -> None:
    """The slot becomes one that an op makes: a copy of a constant with the values of the beginning."""
    old = program.slots[slot]
    kept = tensors.pop(slot).detach().clone(memory_format=torch.preserve_format)
    if 0 in old.sizes:  # it may be another by now: only an empty tensor is given the storage of others
        kept = torch.empty(old.sizes, dtype=kept.dtype)
    elif before is not None:
        whole = before.view(kept.dtype)
        kept = torch.as_strided(whole, kept.shape, kept.stride(), old.offset).clone()
    constant = len(program.slots)
    storage = 1 + max(other.storage for other in program.slots)
    program.slots.append(
        Slot(storage, old.dtype, old.sizes, kept.stride(), role="constant", name=f"constant_{constant}",
             bytes=kept.untyped_storage().nbytes())
    )  # fmt: skip
    tensors[constant] = kept
    program.constants.pop(slot, None)
    dense = kept.contiguous().view(-1)
    program.constants[constant] = dense.view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    old.role, old.name, old.requires_grad = "made", "", False
    _insert_copy(program, constant, slot)


def _insert_copy(program: Program, constant: int, slot: int) -> None:
    uses = (Ref(slot), StorageOf(slot))
    index = next(index for index, op in enumerate(program.ops) if any(part in uses for part in _parts(op)))
    first = program.ops[index]
    copy = Op("aten::clone", [Ref(constant), None], [Ref(slot)], first.stack, first.module, thread=first.thread,
              time_ns=first.time_ns, inserted=True)  # fmt: skip
    program.schemas["aten::clone"] = str(find_schema("aten::clone", ""))
    insert(program, index, copy)


def _parts(op: Op) -> Iterator[object]:
    for value in op.args:
        yield from value if isinstance(value, list) else [value]


def insert(program: Program, index: int, op: Op) -> None:
    """Put an op before another."""
    program.ops.insert(index, op)
    for other in program.ops:
        if other.forward >= index:
            other.forward += 1
