"""Copies that nobody can tell from what they are made of are not made; all others are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import torchreel
from tests.graphs.kernels.op_calls import bits
from torchreel import graphs

_CALLS = 5
Function = Callable[..., Any]


def all_bits(value: Any) -> list[Any]:
    return [bits(leaf) for leaf in tree_leaves(value)]


def kernels(graphed: Any) -> int:
    """Of one of its graphs."""
    return sum(graphs.status(graphed).nodes[0].layers.values())


def held_to_eager(function: Function, make: Callable[[], Any], after: Function | None = None) -> Any:
    """The graphed function, after calls of it were held to eager ones; `after` does something with what both gave."""
    graphed = torchreel.graphed(function)
    for seed in range(_CALLS):
        found = []
        for call in (graphed, function):
            torch.manual_seed(seed)
            given = make()
            gave = call(*given)
            if after is not None:
                after(gave)
            found.append(all_bits([gave, given]))
        assert found[0] == found[1]
    assert graphed.replays() > 0, graphs.status(graphed)
    return graphed


def rows(*counts: int) -> Callable[[], tuple[Tensor, ...]]:
    """Of 32 numbers, so that each begins where a tensor may."""
    return lambda: tuple(torch.randn(count, 32) for count in counts)


@torch.no_grad()
def test_a_copy_that_is_only_read() -> None:
    def function(x: Tensor) -> Tensor:
        a = torch.tanh(x)
        return a.clone() * 2 + a

    assert kernels(held_to_eager(function, rows(4))) == 3


@torch.no_grad()
def test_a_copy_of_what_is_needed_no_more() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.tanh(x).clone().mul_(3)

    assert kernels(held_to_eager(function, rows(4))) == 2


@torch.no_grad()
def test_a_copy_in_another_layout_or_type_is_made() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        a = torch.tanh(x)
        return a.t().contiguous() * 2, a.double() + 1

    assert kernels(held_to_eager(function, rows(4))) == 5


@torch.no_grad()
def test_a_copy_of_what_is_written_later_is_made() -> None:
    def function(x: Tensor) -> Tensor:
        a = torch.tanh(x)
        b = a.clone()
        a.add_(1)
        return a * b

    assert kernels(held_to_eager(function, rows(4))) == 4


@torch.no_grad()
def test_a_copy_of_what_is_written_later_by_a_view_is_made() -> None:
    def function(x: Tensor) -> Tensor:
        a = torch.tanh(x)
        b = a[2:].clone()
        a.view(-1)[70:].zero_()
        return b + a[:2]

    held_to_eager(function, rows(4))


@torch.no_grad()
def test_a_copy_that_is_written_is_made() -> None:
    def function(x: Tensor) -> Tensor:
        a = torch.tanh(x)
        b = a.clone()
        b[1].fill_(7)
        return a - b

    held_to_eager(function, rows(4))


@torch.no_grad()
def test_a_copy_and_its_source_are_both_given() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        a = torch.tanh(x)
        return a, a.clone()

    def after(gave: tuple[Tensor, Tensor]) -> None:
        gave[0].add_(1)

    assert kernels(held_to_eager(function, rows(4), after)) == 2


@torch.no_grad()
def test_a_view_and_a_copy_are_both_given() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        a = torch.tanh(x)
        return a.t(), a.clone()

    held_to_eager(function, rows(4), lambda gave: gave[1].zero_())


@torch.no_grad()
def test_a_copy_of_an_input_or_of_a_parameter_is_made() -> None:
    weight = torch.randn(4, 32)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.clone(), weight.clone()

    def after(gave: tuple[Tensor, Tensor]) -> None:
        for one in gave:
            one.add_(1)

    held_to_eager(function, rows(4), after)


@torch.no_grad()
def test_a_copy_that_is_given_has_no_more_memory_than_it_needs() -> None:
    graphed = torchreel.graphed(lambda x: torch.tanh(x)[2:].clone())
    for _ in range(_CALLS):
        assert graphed(torch.randn(4, 32)).untyped_storage().nbytes() == 2 * 32 * 4


@torch.no_grad()
@pytest.mark.parametrize("join", [torch.cat, torch.stack])
def test_pieces_are_made_where_they_are_joined(join: Function) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return join([torch.tanh(x), torch.exp(y), torch.sin(x)]) * 2

    assert kernels(held_to_eager(function, rows(4, 4))) == 4


@torch.no_grad()
def test_pieces_along_another_dimension() -> None:
    def inner(x: Tensor) -> Tensor:
        return torch.cat([torch.tanh(x), torch.exp(x)], 1)

    def outer_is_one(x: Tensor) -> Tensor:
        return torch.cat([torch.tanh(x)[None], torch.exp(x)[None]], 1)

    assert kernels(held_to_eager(inner, rows(4))) == 3
    assert kernels(held_to_eager(outer_is_one, rows(4))) == 2


@torch.no_grad()
def test_some_pieces_are_copied() -> None:
    def function(x: Tensor) -> Tensor:
        a = torch.tanh(x)
        return torch.cat([a, x, a, torch.exp(x), a[1:]])

    assert kernels(held_to_eager(function, rows(4))) == 3


@torch.no_grad()
def test_pieces_that_would_not_be_aligned_are_copied() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cat([torch.tanh(x), torch.exp(x)])

    assert kernels(held_to_eager(function, lambda: (torch.randn(3, 5),))) == 3


@torch.no_grad()
def test_a_piece_that_is_used_and_written_afterwards() -> None:
    def read(x: Tensor) -> Tensor:
        a = torch.tanh(x)
        return torch.cat([a, torch.exp(x)]).sum() + a

    def written(x: Tensor) -> tuple[Tensor, Tensor]:
        a = torch.tanh(x)
        both = torch.cat([a, torch.exp(x)])
        a.mul_(2)
        return both, a + 1

    def joined_is_written(x: Tensor) -> tuple[Tensor, Tensor]:
        a = torch.tanh(x)
        both = torch.cat([a, torch.exp(x)])
        both.mul_(2)
        return both, a + 1

    for function in (read, written, joined_is_written):
        held_to_eager(function, rows(4))


@torch.no_grad()
def test_a_piece_that_is_given_is_the_callers() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        a = torch.tanh(x)
        return a, torch.cat([a, torch.exp(x)])

    held_to_eager(function, rows(4), lambda gave: gave[0].zero_())
    held_to_eager(function, rows(4), lambda gave: gave[1].zero_())


@torch.no_grad()
def test_joined_tensors_that_are_joined() -> None:
    def function(x: Tensor) -> Tensor:
        inner = torch.cat([torch.tanh(x), torch.exp(x)])
        return torch.cat([torch.sin(x), inner, inner.clone(), torch.stack([torch.cos(x[0]), x[1].abs()])])

    held_to_eager(function, rows(4))


def copies_then_saves(x: Tensor) -> tuple[Tensor, Tensor]:
    a = torch.tanh(x)  # saves what it gives
    return (a * a).sin(), a.clone()


def saves_the_copy(x: Tensor) -> tuple[Tensor, Tensor]:
    a = x * 3
    b = a.clone()
    return (b * b).exp(), a.detach()


def saves_pieces(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = torch.tanh(x), torch.sigmoid(x)
    return torch.cat([a, b]) * 2, torch.stack([a.exp(), b])


@pytest.mark.parametrize("function", [copies_then_saves, saves_the_copy, saves_pieces])
@pytest.mark.parametrize("retained", [False, True])
def test_what_a_backward_reads_is_not_the_callers(function: Function, retained: bool) -> None:
    graphed = torchreel.graphed(function)
    for seed in range(_CALLS):
        found = []
        for call in (graphed, function):
            torch.manual_seed(seed)
            x = torch.randn(4, 32, requires_grad=True)
            first, second = call(x)
            loss = (first * 2).sum() + second.sum()
            with torch.no_grad():
                second.data.mul_(5)  # not seen by autograd
            for _ in range(2 if retained else 1):
                found.append(all_bits(torch.autograd.grad(loss, x, retain_graph=retained)))
        assert found[: len(found) // 2] == found[len(found) // 2 :]
    assert graphed.replays() > 0


def test_an_lstm_by_hand_joins_nothing() -> None:
    cell = torch.nn.LSTMCell(32, 32).requires_grad_(False)

    def function(x: Tensor) -> Tensor:
        h, c = cell(x[0])
        all_of_them = [h]
        for i in range(1, x.size(0)):
            h, c = cell(x[i], (h, c))
            all_of_them.append(h)
        return torch.stack(all_of_them)

    graphed = held_to_eager(function, lambda: (torch.randn(6, 4, 32),))
    assert "copy" not in graphs.status(graphed).nodes[0].layers
