"""A tape into a file: its program, and the bytes of what it began with."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

import torch

from torchreel.program.file.file import write_tape
from torchreel.program.model import Slot
from torchreel.tape.replay.stored import storable

if TYPE_CHECKING:
    from torchreel.tape.tape import Tape

_SHOWN = 4


def save(tape: Tape, path: str | os.PathLike[str], data: bool) -> None:
    """Write the program, and with `data` the storages of state and inputs.

    A tape with digests writes how they were at the beginning, so that a check of the file begins as the trace did; any
    other writes what they are now.
    """
    if not data:
        return write_tape(path, tape.program)
    start = tape.start if any(op.digests for op in tape.program.ops) else {}
    contents: dict[int, memoryview] = {}
    missing = []
    for index, slot in enumerate(tape.program.slots):
        if slot.role == "made" or slot.is_number or index in tape.program.constants or slot.storage in contents:
            continue
        content = start.get(slot.storage)
        if content is None:
            content = _storage(slot, tape.tensors.get(index))
        if content is None:
            missing.append(slot.name)
        else:
            contents[slot.storage] = memoryview(content.numpy())
    write_tape(path, tape.program, contents)
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        warnings.warn(
            f"{path} can be read but not replayed, because a file has no place for tensors that are sparse, quantized "
            f"or nested: {', '.join(missing[:_SHOWN])}{more}.",
            stacklevel=3,
        )


def _storage(slot: Slot, tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The bytes under a tensor, or None where it has none of its own."""
    if tensor is None or not storable(slot):
        return None
    try:
        storage = tensor.detach().untyped_storage()
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu()
    except (RuntimeError, NotImplementedError):  # a tensor that only looks like one
        return None
