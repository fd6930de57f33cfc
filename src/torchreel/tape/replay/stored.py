"""Tensors from the bytes of a file: a storage for each that was stored, and the views of it that the program names."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch

from torchreel._torch.tensors import negative_view
from torchreel.errors import ReplayError
from torchreel.program.model import Program, Slot

Bytes = memoryview | bytes


class StoredTensors:
    """Makes tensors that own their memory; those that share a storage in the program share one here."""

    def __init__(self, program: Program, data: Mapping[int, Bytes]) -> None:
        self._program = program
        self._data = data
        self._storages: dict[int, torch.UntypedStorage] = {}

    def tensor(self, index: int) -> torch.Tensor | None:
        """The tensor of a slot, or None where the file has no bytes of it."""
        slot = self._program.slots[index]
        if not storable(slot):
            return None
        if index in self._program.constants:
            return _constant(slot, self._program.constants[index])
        if slot.storage not in self._data:
            return None
        if slot.storage not in self._storages:
            self._storages[slot.storage] = owned(self._data[slot.storage]).to(_device(slot)).untyped_storage()
        return _view(slot, self._storages[slot.storage])


def storable(slot: Slot) -> bool:
    """Whether its bytes are all that a tensor is. Those of quantized ones have scales and zero points besides."""
    return slot.layout == "strided" and not slot.dtype.startswith("q") and slot.device != "meta"


def owned(content: Bytes) -> torch.Tensor:
    """A copy of the bytes, as a tensor."""
    copy = torch.empty(len(content), dtype=torch.uint8)
    if len(content):
        copy.copy_(mapped(content))
    return copy


def mapped(content: Bytes) -> torch.Tensor:
    """The bytes themselves as a tensor, which must not be written."""
    if not len(content):
        return torch.empty(0, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(content, dtype=torch.uint8)


def _device(slot: Slot) -> torch.device:
    try:
        torch.empty(0, device=slot.device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ReplayError(
            f"The tape has tensors on {slot.device}, which this machine does not have: replay it where there is one."
        ) from None
    return torch.device(slot.device)


def _view(slot: Slot, storage: torch.UntypedStorage) -> torch.Tensor:
    tensor = torch.empty(0, dtype=getattr(torch, slot.dtype), device=storage.device)
    with torch.no_grad():
        tensor.set_(storage, slot.offset, slot.sizes, slot.strides)
    if slot.conjugate:
        tensor = torch.conj(tensor)
    if slot.negative:
        tensor = negative_view(tensor)
    return tensor.requires_grad_(slot.requires_grad)


def _constant(slot: Slot, content: bytes) -> torch.Tensor:
    """A constant's bytes stand in the order of its indices; its strides are those of the slot."""
    dense = owned(content).view(getattr(torch, slot.dtype)).reshape(slot.sizes)
    once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in slot.strides)
    part = dense[once]
    try:
        tensor = torch.empty_strided(part.shape, slot.strides, dtype=dense.dtype).copy_(part)
    except RuntimeError:  # elements that overlap in memory, as those of windows do
        tensor = dense
    return tensor.expand(slot.sizes).to(_device(slot))
