"""Random functions of ops that may be lowered exactly, with views and writes in place, held to eager bit by bit."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.graphs.inductor.test_inductor import _CALLS, _PATIENCE, same, special
from torchreel import graphed
from torchreel.graphs import status, wait

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a compiler")

SHAPES = [(5, 8), (1, 16), (12, 3), (2, 6, 4)]

_UNARY: list[Callable[[Tensor], Tensor]] = [
    torch.relu, torch.neg, torch.abs, torch.floor, torch.reciprocal, lambda x: x * 0.3, lambda x: 1 - x,
    lambda x: x / 3, lambda x: x**2, lambda x: torch.where(x > 0.2, x, x * 0.1), lambda x: x.clone(),
    lambda x: x.double().float(), lambda x: x.masked_fill(x < -0.5, 2.0), lambda x: x.contiguous(),
]  # fmt: skip
_VIEWS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.transpose(0, -1), lambda x: x[..., 1:], lambda x: x[:1], lambda x: x.reshape(-1),
    lambda x: x.chunk(2, -1)[0], lambda x: x.chunk(2, -1)[1] if x.shape[-1] > 1 else x, lambda x: x.unsqueeze(0),
    lambda x: x[..., ::2], lambda x: x[0].expand(2, *x.shape[1:]), lambda x: x.flatten(),
]  # fmt: skip
_WRITES: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.mul_(0.5), lambda x: x.add_(1), lambda x: x.relu_(), lambda x: x.sub_(0.25), lambda x: x.neg_(),
    lambda x: x.fill_(0.5), lambda x: x.div_(3), lambda x: x.masked_fill_(x > 1, -1.0),
]  # fmt: skip


def _can_be_written(x: Tensor) -> bool:
    return torch._debug_has_internal_overlap(x) == 0


def drawn(seed: int) -> Callable[[Tensor, Tensor, Tensor], Any]:
    """A function of two tensors, and of a state that it may write."""
    choose = random.Random(seed)
    moves = [(choose.random(), choose.randrange(1000), choose.randrange(1000)) for _ in range(choose.randint(6, 16))]
    returned = [choose.randrange(1000) for _ in range(choose.randint(1, 3))]
    writes_inputs = choose.random() < 0.3

    def function(x: Tensor, y: Tensor, state: Tensor) -> Any:
        values = [x, y, state] if writes_inputs else [x * 1.5, y - 1, state]
        for what, one, other in moves:
            a, b = values[one % len(values)], values[other % len(values)]
            if what < 0.3:
                values.append(_UNARY[other % len(_UNARY)](a))
            elif what < 0.55 and a.shape == b.shape:
                values.append([torch.add, torch.mul, torch.sub, torch.div][one % 4](a, b))
            elif what < 0.75:
                values.append(_VIEWS[other % len(_VIEWS)](a))
            elif _can_be_written(a):
                values.append(a.copy_(b) if a.shape == b.shape and other % 3 == 0 else _WRITES[other % len(_WRITES)](a))
        chosen = [values[-1 - place % len(values)] for place in returned]
        return tuple(each + 0 if each is state else each for each in chosen)

    return function


def held_to_eager(seeds: range) -> int:
    """How many kernels of Inductor were used."""
    torch.manual_seed(0)
    made = []
    for seed in seeds:
        shape = SHAPES[seed % len(SHAPES)]
        state = torch.randn(shape)
        function = drawn(seed)
        fast = graphed(lambda x, y, function=function, state=state: function(x, y, state), inductor="always")
        made.append((seed, shape, function, fast, state, state.clone()))
    for calls in (4, _CALLS):
        for seed, shape, function, fast, state, own in made:
            assert calls == 4 or wait(fast, _PATIENCE)
            for call in range(calls):
                given = [special(*shape), special(*shape)]
                others = [each.clone() for each in given]
                found, wanted = fast(*given), function(*others, own)
                assert same((found, given, state), (wanted, others, own)), (seed, calls, call, str(status(fast)))
    lines = [line for _, _, _, fast, _, _ in made for line in status(fast).kernels]
    assert not [line for line in lines if "other bits" in line], lines
    return sum(": in use" in line for line in lines)


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 8), marks=pytest.mark.long)], ids=str)
@torch.no_grad()
def test_some_programs(seeds: range) -> None:
    assert held_to_eager(seeds) > 0


@pytest.mark.long
@torch.no_grad()
@pytest.mark.parametrize("first", range(100, 400, 20))
def test_many_programs(first: int) -> None:
    assert held_to_eager(range(first, first + 20)) > 0


def held_to_eager_with_gradients(seeds: range) -> int:
    """Of functions that write nothing that autograd needs, forward and backward; how many kernels were used."""
    torch.manual_seed(0)
    made = []
    for seed in seeds:
        shape = SHAPES[seed % len(SHAPES)]
        weight = torch.randn(shape, requires_grad=True)
        function = differentiable(seed)
        fast = graphed(lambda x, function=function, weight=weight: function(x, weight), inductor="always")
        made.append((seed, shape, function, fast, weight))
    for calls in (4, _CALLS):
        for seed, shape, function, fast, weight in made:
            assert calls == 4 or wait(fast, _PATIENCE)
            for call in range(calls):
                x = torch.randn(shape, requires_grad=True)
                found, wanted = fast(x), function(x, weight)
                gradient = torch.randn_like(wanted)
                pairs = [torch.autograd.grad(each, (x, weight), gradient) for each in (found, wanted)]
                same_values = same(found.detach(), wanted.detach()) and same(*pairs)
                assert same_values, (seed, calls, call, str(status(fast)))
    lines = [line for _, _, _, fast, _ in made for line in status(fast).kernels]
    assert not [line for line in lines if "other bits" in line], lines
    return sum(": in use" in line for line in lines)


def differentiable(seed: int) -> Callable[[Tensor, Tensor], Tensor]:
    choose = random.Random(seed)
    moves = [(choose.random(), choose.randrange(1000), choose.randrange(1000)) for _ in range(choose.randint(5, 12))]

    def function(x: Tensor, weight: Tensor) -> Tensor:
        values = [x * weight, x - weight]
        for what, one, other in moves:
            a, b = values[one % len(values)], values[other % len(values)]
            if what < 0.45:
                values.append(_UNARY[other % len(_UNARY)](a))
            elif what < 0.8 and a.shape == b.shape:
                values.append([torch.add, torch.mul, torch.sub][one % 3](a, b))
            elif what < 0.9:
                values.append(_VIEWS[other % len(_VIEWS)](a))
            else:
                values.append((a * 1.0).mul_(0.5).add_(1))
        return values[-1] + values[0].sum() * 0.0 + 1

    return function


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 6), marks=pytest.mark.long)], ids=str)
def test_some_programs_with_gradients(seeds: range) -> None:
    assert held_to_eager_with_gradients(seeds) > 0


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 400, 20))
def test_many_programs_with_gradients(first: int) -> None:
    assert held_to_eager_with_gradients(range(first, first + 20)) > 0
