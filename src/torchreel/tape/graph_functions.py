"""What a graph of a tape calls that torch has no op for. Each is named in the graph's code, so it is public there."""

from __future__ import annotations

import base64
import functools
import importlib
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.node import has_side_effect

from torchreel._torch import dispatch
from torchreel._torch.autograd import other_operand
from torchreel.errors import GuardError, ReplayError


def below_autograd(function: Callable[..., Any]) -> Callable[..., Any]:
    """The ops are those that autograd called, for forward and backward: it must not hear of them again."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        # With gradients on: some kernels keep what backward needs only then.
        with torch.enable_grad(), dispatch.below_autograd():
            return function(*args, **kwargs)

    return called


def guard(found: Any, recorded: Any, where: str) -> Any:
    """The function's Python code saw this number, and went on as it did because of it."""
    if repr(found) != repr(recorded):
        raise GuardError(
            f"{where}: the number that left for Python is {found!r}, and was {recorded!r} when the tape was recorded: "
            "trace the function again with these inputs."
        )
    return found


def guard_size(tensor: torch.Tensor, sizes: list[int], where: str) -> None:
    """The size of this tensor depends on values, and the ops that follow have it in their arguments."""
    if list(tensor.shape) != sizes:
        raise GuardError(
            f"{where}: the result has the size {list(tensor.shape)}, and had {sizes} when the tape was recorded: "
            "trace the function again with these inputs."
        )


def number(value: complex) -> torch.Tensor:
    """The tensor that torch makes of a Python number: unlike any other, it does not widen the dtypes it meets."""
    dtype = torch.complex128 if isinstance(value, complex) else torch.float64
    nothing = dispatch.DispatchKeySet(dispatch.DispatchKey.Undefined)
    # Autograd, let in for this: it keeps the tensor for backward.
    with dispatch.force_keys(dispatch.included_keys(), nothing), torch.enable_grad():
        product = torch.ones((), dtype=dtype, requires_grad=True) * value
        saved: torch.Tensor = other_operand(product.grad_fn)
        return saved


def generator(device: str, state: str = "") -> torch.Generator:
    """A random generator: torch's own if there is no state, else a new one in that state (zlib, base 85)."""
    if state:
        content = bytearray(zlib.decompress(base64.b85decode(state)))
        return torch.Generator(device).set_state(torch.frombuffer(content, dtype=torch.uint8))
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return torch.default_generator
    found: torch.Generator = getattr(torch, kind).default_generators[int(index or 0)]
    return found


def set_state(of: torch.Generator, state: torch.Tensor) -> None:
    of.set_state(state)


def get_state(of: torch.Generator) -> torch.Tensor:
    return of.get_state()


def seed(of: torch.Generator) -> int:
    """The seed of a generator, its 64 bits read as a signed number."""
    return int(of.initial_seed() + 2**63) % 2**64 - 2**63


def new_seed(of: torch.Generator) -> int:
    return int(of.seed() + 2**63) % 2**64 - 2**63


def digest(tensor: torch.Tensor) -> int:
    """The hash that tapes keep of tensors."""
    importlib.import_module("torchreel._tape")  # which has the op
    found: int = torch.ops.torchreel.seen.default(tensor)
    return found


def storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()


def without_gradients(owners: list[torch.Tensor]) -> None:
    """The function adds to a gradient that is there already, and there was none when the tape was recorded."""
    if any(owner.grad is not None for owner in owners):
        raise ReplayError(
            "A tensor of the tape's state has a gradient, and had none when the tape was recorded: clear it first, "
            "with zero_grad() or with .grad = None."
        )


def set_gradient(owner: torch.Tensor, value: torch.Tensor | None) -> None:
    owner.grad = value


def set_data(owner: torch.Tensor, value: torch.Tensor) -> None:
    owner.data = value


# Passes of torch.fx leave out nodes whose results nobody uses, but these.
for _function in (
    guard,
    guard_size,
    generator,
    get_state,
    set_state,
    new_seed,
    without_gradients,
    set_gradient,
    set_data,
):
    has_side_effect(_function)
