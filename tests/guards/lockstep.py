"""A program and its twin: one is called eagerly and one through a graph, and both must give and leave the same.

A program is made by a function without arguments, so that the twins share nothing. It gives a `World`: the function
that is called, what is changed between its calls and how that is taken back, and what can be seen of it besides its
results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import torchreel
from torchreel import graphs

# `c` is a call, `!` the change, `~` the way back.
PATTERNS = ("cccc!ccc~ccc", "c!ccc~cc", "cc!ccc~cc", "cccc!c~c!c~cc")
SHORT = ("ccc!cc", "c!cc")


def _nothing() -> Any:
    return None


@dataclass
class World:
    function: Callable[..., Any]
    change: Callable[[], Any] = _nothing
    back: Callable[[], Any] = _nothing
    seen: Callable[[], Any] = _nothing
    inputs: Callable[[int], tuple[Any, ...]] = field(default=lambda turn: (torch.randn(3),))


Maker = Callable[[], World]


def told(value: Any, depth: int = 0) -> Any:
    """What can be seen of a value, without its address."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, BaseException):
        return "raised", type(value).__name__, str(value)
    if depth > 6:
        return "..."
    if isinstance(value, dict):
        return type(value).__name__, [(told(key, depth + 1), told(one, depth + 1)) for key, one in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [told(one, depth + 1) for one in list(value)]
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(repr(told(one, depth + 1)) for one in value)
    own = getattr(value, "__dict__", None)
    if type(own) is dict and not isinstance(value, type) and not callable(value):
        return type(value).__name__, told(own, depth + 1)
    return type(value).__name__ if callable(value) or " at 0x" in repr(value) else (type(value).__name__, repr(value))


def _tensor(value: torch.Tensor) -> Any:
    plain = value.detach()
    if plain.layout == torch.strided and not plain.is_quantized:
        bits = plain.contiguous().view(torch.uint8 if plain.dim() else plain.dtype).tolist()
    else:
        bits = repr(plain)
    return type(value).__name__, str(value.dtype), tuple(value.shape), value.requires_grad, repr(bits)


def _called(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return told(function(*args))
    except Exception as error:
        return told(error)


def _steps(world: World, function: Callable[..., Any], pattern: str) -> list[Any]:
    seen = []
    for turn, step in enumerate(pattern):
        if step == "c":
            torch.default_generator.manual_seed(turn)  # torch.manual_seed() asks for each kind of device
            args = world.inputs(turn)
            seen.append((turn, _called(function, args), told(args), told(world.seen())))
        else:
            (world.change if step == "!" else world.back)()
    return seen


def differences(maker: Maker, pattern: str) -> tuple[list[str], str]:
    """What is not as eager, and why calls ran eagerly; with neither, the calls were replayed."""
    world = maker()
    wanted = _steps(world, world.function, pattern)
    world = maker()
    graphed = torchreel.graphed(world.function)
    got = _steps(world, graphed, pattern)
    wrong = [f"call {one[0]}: {two[1:]} is not {one[1:]}" for one, two in zip(wanted, got, strict=True) if one != two]
    status = graphs.status(graphed)
    return wrong, "; ".join(skip.reason for skip in status.skips)


def check(maker: Maker, patterns: tuple[str, ...] = PATTERNS) -> None:
    for pattern in patterns:
        wrong, _ = differences(maker, pattern)
        assert not wrong, f"{pattern}: {wrong[0]}"
