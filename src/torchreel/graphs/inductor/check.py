"""A library that was just compiled is held to its ops, on numbers of all kinds, before anybody gets it.

The process that it is for compares once more, on what it really computes with; but that may be all positive, or all
small, and hide what a kernel does wrong with other numbers.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from torchreel.graphs.inductor.function import function_of
from torchreel.graphs.inductor.job import ENTRY, Answer, Job
from torchreel.program.model import Slot

_DRAWS = 4
_SPECIAL = (float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-41, -1e-41, 3e38)


class RefusedError(Exception):
    """Inductor's code is of no use here. The message is the end of a sentence."""


def check(job: Job, made: Answer, library: Any) -> None:
    """Raises RefusedError."""
    for draw in range(_DRAWS):
        torch.manual_seed(draw)
        given = [_numbers(job.slots[slot], job.exact and draw % 2 == 1) for slot in job.inputs]
        wanted_given = [_copy(tensor) for tensor in given]
        wanted = function_of(job)(*wanted_given)
        found = [_memory(job.slots[slot]) for slot in job.outputs]
        _run(job, made, library, given, found)
        kept = [index for index, slot in enumerate(job.inputs) if slot not in job.discarded]
        pairs = [*zip(found, wanted, strict=True), *((given[index], wanted_given[index]) for index in kept)]
        if not all(_agree(one, other, job.exact) for one, other in pairs):
            raise RefusedError("gives other numbers than the ops themselves")


def _run(job: Job, made: Answer, library: Any, given: list[torch.Tensor], found: list[torch.Tensor]) -> None:
    tensors = dict(zip([*job.inputs, *job.outputs], [*given, *found], strict=True))
    scratch = [torch.empty(count, dtype=torch.uint8) for count in made.scratch]
    addresses = [
        (tensors[each.slot] if each.slot >= 0 else scratch[each.scratch]).data_ptr() + each.offset
        for each in made.pointers
    ]
    getattr(library, ENTRY)((ctypes.c_void_p * len(addresses))(*addresses))


def _memory(slot: Slot) -> torch.Tensor:
    return torch.empty_strided(slot.sizes, slot.strides, dtype=getattr(torch, slot.dtype))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    copy = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    copy.untyped_storage().copy_(tensor.untyped_storage())
    return copy


def _numbers(slot: Slot, special: bool) -> torch.Tensor:
    tensor = _memory(slot)
    flat = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    if tensor.dtype == torch.bool:
        flat.copy_(torch.rand(flat.shape) < 0.5)
    elif not tensor.is_floating_point():
        flat.copy_(torch.randint(-3, 4, flat.shape))
    else:
        flat.copy_(torch.randn(flat.shape) * 2)
        if special:
            count = max(2, flat.numel() // 16)
            indices = torch.randint(0, flat.numel(), (count,))
            flat[indices] = torch.tensor(_SPECIAL).to(flat.dtype).repeat(count // len(_SPECIAL) + 1)[:count]
    return tensor


def _agree(one: torch.Tensor, other: torch.Tensor, exact: bool) -> bool:
    """All bits, but those of what is no number; else roughly: how far is for the numbers of the user to tell."""
    if not exact:
        return bool(torch.allclose(one, other, rtol=1e-2, atol=1e-2, equal_nan=True))
    same = (one == other) & (torch.signbit(one) == torch.signbit(other))
    return bool((same | (one.isnan() & other.isnan())).all())
