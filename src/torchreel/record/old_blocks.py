"""Tensors that are older than the recording: known from the start, with what they are, and seen when they are freed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch

from torchreel import _core
from torchreel._torch.tensors import data_address, storage_address


def _tensors_of(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_of(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors_of(item)


def _categorized() -> Iterator[tuple[torch.Tensor, str]]:
    """Every living tensor that Python knows, with its category; the surest category first."""
    tensors: list[torch.Tensor] = []
    optimizers: list[torch.optim.Optimizer] = []
    lists: dict[type, list[Any] | None] = {}
    for item in gc.get_objects():
        # Not isinstance, which proxies answer by running their own code; and once for each type: there are few.
        kind = type(item)
        if kind not in lists:
            is_tensor, is_optimizer = issubclass(kind, torch.Tensor), issubclass(kind, torch.optim.Optimizer)
            lists[kind] = tensors if is_tensor else optimizers if is_optimizer else None
        wanted = lists[kind]
        if wanted is not None:
            wanted.append(item)
    for tensor in tensors:
        if isinstance(tensor, torch.nn.Parameter):
            yield tensor, "parameter"
            if tensor.grad is not None:
                yield tensor.grad, "gradient"
    for optimizer in optimizers:
        for tensor in _tensors_of(list(optimizer.state.values())):
            yield tensor, "optimizer_state"
    for tensor in tensors:
        yield tensor, ""


def living_blocks() -> Iterator[tuple[int, int, str]]:
    """Address, bytes and category of every CPU block that is alive, whose free will be seen from now on."""
    seen: set[int] = set()
    for tensor, category in _categorized():
        try:
            if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
                continue
            storage = tensor.untyped_storage()
            address = data_address(tensor)  # data_ptr() would end the sharing of a copy-on-write tensor
        except (RuntimeError, NotImplementedError, ValueError):
            continue  # a tensor without storage: fake, functional, a lazy parameter, a subclass that refuses
        if address == 0 or address in seen:
            continue
        seen.add(address)
        if _core.adopt_storage(storage_address(storage)):
            yield address, storage.nbytes(), category


def define_old_blocks() -> None:
    """Tell the recording, which has begun, of every CPU block that is alive."""
    for address, size, category in living_blocks():
        _core.define_old_block(address, size, category)
    for address, size in _core.private_blocks():
        _core.define_old_block(address, size, "")
