"""What a call gave and changed, bit by bit, and how to put it all back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves, tree_map

from tests.tape.programs import Case


def bits(value: Any) -> Any:
    """Something that is equal for equal bits, whatever the layout."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    if is_traceable_wrapper_subclass(value):
        names, _ = value.__tensor_flatten__()
        return type(value).__name__, [bits(getattr(value, name)) for name in names]
    value = value.detach()
    if value.is_nested:
        return "nested", [bits(part) for part in value.unbind()]
    if value.is_quantized:
        return value.dtype, bits(value.int_repr()), bits(value.dequantize())
    if value.layout == torch.sparse_coo:
        return value.is_coalesced(), bits(value._indices()), bits(value._values()), tuple(value.shape)
    if value.layout == torch.sparse_csr:
        return bits(value.crow_indices()), bits(value.col_indices()), bits(value.values()), tuple(value.shape)
    dense = value.resolve_conj().resolve_neg().contiguous().view(-1)
    return value.dtype, tuple(value.shape), dense.view(torch.uint8).numpy().tobytes() if dense.numel() else b""


@dataclass
class Start:
    """What a case began with."""

    owners: list[torch.Tensor]
    gradients: list[torch.Tensor | None]
    random: list[torch.Tensor]


def copied(value: Any) -> Any:
    return tree_map(lambda part: part.detach().clone() if isinstance(part, torch.Tensor) else part, value)


def start_of(case: Case) -> Start:
    gradients = [None if owner.grad is None else owner.grad.clone() for owner in case.owners]
    random = [torch.get_rng_state(), *(generator.get_state() for generator in case.generators)]
    return Start([owner.detach().clone() for owner in case.owners], gradients, random)


def put_back(case: Case, start: Start) -> None:
    with torch.no_grad():
        for owner, value, gradient in zip(case.owners, start.owners, start.gradients, strict=True):
            owner.copy_(value)
            if gradient is None or owner.grad is None:
                owner.grad = None if gradient is None else gradient.clone()
            else:
                owner.grad.copy_(gradient)  # in place: a tape may know this very tensor
    torch.set_rng_state(start.random[0])
    for generator, state in zip(case.generators, start.random[1:], strict=True):
        generator.set_state(state)


def outcome(case: Case, returned: Any, inputs: list[Any]) -> list[Any]:
    """Results, inputs, state, gradients and generators after a call."""
    values = [*tree_leaves(returned), *inputs, *case.owners, *(owner.grad for owner in case.owners)]
    values += [torch.get_rng_state(), *(generator.get_state() for generator in case.generators)]
    return [bits(value) for value in values]


def called(case: Case, start: Start, function: Any, inputs: list[Any]) -> list[Any]:
    """The outcome of a call from the start."""
    put_back(case, start)
    given = copied(inputs)
    return outcome(case, function(*given), given)
