"""Chains of ops on one element each are done a tile at a time, and give bit by bit what they give one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import torchreel
from tests.graphs.kernels.op_calls import bits
from torchreel import graphs

_CALLS = 4
_MANY = 1 << 16  # enough for two threads
Function = Callable[..., Any]
DTYPES = [torch.float32, *(pytest.param(dtype, marks=pytest.mark.long) for dtype in (torch.float64, torch.bfloat16))]


@pytest.fixture(autouse=True, params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def numbers(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """With some that are no numbers, and some beyond the range of what is common."""
    found = torch.randn(sizes) * 3
    flat = found.view(-1)
    flat[:: max(1, flat.numel() // 97)] *= 1e20
    flat[flat.numel() // 3] = float("inf")
    flat[flat.numel() // 2] = float("nan")
    return found.to(dtype)


def all_bits(value: Any) -> list[Any]:
    return [bits(leaf) for leaf in tree_leaves(value)]


def tiles(graphed: Any) -> int:
    return sum(node.layers.get("tiles", 0) for node in graphs.status(graphed).nodes)


def held_to_eager(function: Function, make: Callable[[], tuple[Any, ...]], least: int = 1) -> Any:
    """The graphed function, after calls of it were held to eager ones."""
    graphed = torchreel.graphed(function)
    for seed in range(_CALLS):
        torch.manual_seed(seed)
        given = make()
        torch.manual_seed(seed)
        others = make()
        assert all_bits(graphed(*given)) == all_bits(function(*others))
        assert all_bits(given) == all_bits(others)
    assert graphed.replays() > 0, graphs.status(graphed)
    assert tiles(graphed) >= least, graphs.status(graphed)
    return graphed


def many_ops(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a = x * 2 + y
    b = torch.tanh(a)
    c = torch.sigmoid(a) * b
    d = torch.relu(c) + x
    return torch.exp(-d) / (1 + a * a)


@pytest.mark.parametrize("count", [_MANY, _MANY + 1, _MANY + 17, 299_993])
@torch.no_grad()
def test_a_chain_is_bitwise_whatever_the_number_of_elements(count: int) -> None:
    held_to_eager(many_ops, lambda: (numbers(count), numbers(count)))


@torch.no_grad()
def test_what_the_caller_gets_of_a_chain_is_all_there() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x + 1
        b = a.exp()
        c = b * a
        return c, a, c > 0

    held_to_eager(function, lambda: (numbers(_MANY),))


def _names(text: str) -> list[str]:
    return text.split()


def _sampled(names: list[str]) -> list[Any]:
    """Every third op, and the others in long runs."""
    return [pytest.param(name, marks=[pytest.mark.long] * (place % 3 != 0)) for place, name in enumerate(names)]


UNARY = _names(
    "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc erfinv exp exp2 expm1 floor frac "
    "lgamma log log10 log1p log2 logit neg reciprocal round rsqrt sigmoid sign sin sinh sqrt square tan tanh "
    "trunc digamma isposinf isneginf isnan signbit sgn nan_to_num i0 sinc positive logical_not"
)
ACTIVATIONS = _names(
    "relu relu6 gelu silu mish hardswish hardsigmoid hardtanh leaky_relu elu selu celu softplus softsign "
    "logsigmoid tanhshrink hardshrink softshrink"
)


@pytest.mark.parametrize("name", _sampled(UNARY) + _sampled(ACTIVATIONS))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.no_grad()
def test_ops_of_one_operand(name: str, dtype: torch.dtype) -> None:
    op = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    count = _MANY + 5

    # Ops that are no part of chains may stand between: what is around them is.
    held_to_eager(lambda x: op((x * 0.5).neg()).add(1).mul(3), lambda: (numbers(count, dtype=dtype),))


BINARY = _names(
    "add sub mul div maximum minimum fmax fmin pow atan2 hypot fmod remainder copysign floor_divide eq ne lt "
    "le gt ge logical_and logical_or logical_xor nextafter logaddexp xlogy heaviside"
)


@pytest.mark.parametrize("name", _sampled(BINARY))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.no_grad()
def test_ops_of_two_operands(name: str, dtype: torch.dtype) -> None:
    op = getattr(torch, name)
    if name == "logaddexp" and dtype == torch.bfloat16:
        pytest.skip("torch has it not on the CPU")
    count = _MANY + 5
    make = lambda: (numbers(count, dtype=dtype), numbers(count, dtype=dtype))  # noqa: E731
    held_to_eager(lambda x, y: op(x.neg().abs(), y.neg().sub(y)).to(dtype).neg().abs(), make)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool], ids=str)
@torch.no_grad()
def test_whole_numbers(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((x & y) | (x ^ y)) == x

    held_to_eager(function, lambda: (torch.randint(0, 100, (_MANY + 9,)).to(dtype),) * 2)


@torch.no_grad()
def test_numbers_that_are_tensors_and_operands_of_another_dtype() -> None:
    def function(x: torch.Tensor, scale: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.where((x * scale + 1.5).neg() > 0, x, scale).mul(mask).add(scale, alpha=3).neg()

    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        held_to_eager(function, lambda dtype=dtype: (  # type: ignore[misc]
            numbers(_MANY + 5, dtype=dtype), torch.randn(()).to(dtype), torch.rand(_MANY + 5) > 0.5,
        ))  # fmt: skip


@torch.no_grad()
def test_one_element_of_what_the_chain_writes_is_used_for_all() -> None:
    held_to_eager(lambda x: ((y := x.neg().sub(1)) * y[7]).neg().exp(), lambda: (torch.randn(_MANY),))
    held_to_eager(lambda x: ((y := x.neg().sub(1)) * y[_MANY - 1]).neg().exp(), lambda: (torch.randn(_MANY),))


@torch.no_grad()
def test_elements_beside_those_that_the_chain_writes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(_MANY + 1)
        torch.neg(x, out=y[:-1])
        z = y[1:].exp()
        return z.mul_(y[:-1]).neg()

    held_to_eager(function, lambda: (torch.randn(_MANY),))

    def in_place(x: torch.Tensor) -> torch.Tensor:
        x[1:].mul_(2).add_(1)
        x[:-1].neg_().exp_()
        return x.neg()

    held_to_eager(in_place, lambda: (torch.randn(_MANY + 1),))


@torch.no_grad()
def test_in_place() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2).add_(y, alpha=0.3).tanh_()
        z = x.exp()
        z.neg_().clamp_(-1, 1)
        return z + x

    held_to_eager(function, lambda: (numbers(_MANY + 3), numbers(_MANY + 3)))


@torch.no_grad()
def test_layouts() -> None:
    last = torch.channels_last
    held_to_eager(many_ops, lambda: tuple(numbers(4, 16, 65, 65).to(memory_format=last) for _ in range(2)))
    held_to_eager(many_ops, lambda: (numbers(4, 16, 65, 65), numbers(4, 16, 65, 65)))
    held_to_eager(many_ops, lambda: (numbers(600, 500).t(), numbers(600, 500).t()))
    held_to_eager(many_ops, lambda: (numbers(4, 16, 65, 65).to(memory_format=last), numbers(4, 16, 65, 65)))
    held_to_eager(many_ops, lambda: (numbers(600, 500), numbers(500)))


@torch.no_grad()
def test_memory_that_is_used_again_for_elements_of_another_size() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        a = x.double().neg() * 2
        b = (a > 0).logical_not()
        c = a.neg().float() * b
        d = (c > 1).logical_not()
        e = (c.neg() + d).exp()
        return (e * d).neg() + (b & d).logical_not()

    held_to_eager(function, lambda: (numbers(_MANY + 3),))


@pytest.mark.parametrize("other", [torch.bfloat16, torch.float16, torch.float64, torch.int32], ids=str)
@torch.no_grad()
def test_conversions_and_choices_are_part_of_chains(other: torch.dtype) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = x.neg().clamp(-9, 9).nan_to_num()
        b = a.to(other).float().clone()
        return torch.where(b > 0, a, y).masked_fill(a > 1, 3).neg()

    held_to_eager(function, lambda: (numbers(_MANY + 3), numbers(_MANY + 3)))


@torch.no_grad()
def test_constants_of_another_dtype() -> None:
    whole = torch.arange(_MANY)
    held_to_eager(lambda x: (x.neg() + whole).mul(2).neg(), lambda: (numbers(_MANY),))


def test_training() -> None:
    weight = torch.randn(_MANY, requires_grad=True)

    def step(x: torch.Tensor) -> Any:
        loss = many_ops(x * weight, x).nan_to_num().sum()
        return torch.autograd.grad(loss, [weight])

    held_to_eager(step, lambda: (torch.randn(_MANY),), least=2)


@torch.no_grad()
def test_another_number_of_threads_than_when_it_was_made(threads: int) -> None:
    # With as many as do not divide it, torch begins its vectors elsewhere.
    make = lambda: (numbers(_MANY + 1), numbers(_MANY + 1))  # noqa: E731
    graphed = held_to_eager(many_ops, make)
    given = make()
    torch.set_num_threads(3 - threads)
    assert bits(graphed(*given)) == bits(many_ops(*given))


@torch.no_grad()
def test_what_fits_into_the_cache_is_left_as_it_is() -> None:
    graphed = held_to_eager(many_ops, lambda: (numbers(100), numbers(100)), least=0)
    assert tiles(graphed) == 0
