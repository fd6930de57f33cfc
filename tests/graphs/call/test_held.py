"""Outputs that are held while their function runs again: another graph, a copy, or an error; never overwritten."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import torchreel
from torchreel import graphs
from torchreel.errors import HeldOutputError

KEEPING: list[Any] = ["branch", "copy"]


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def warmed(**options: Any) -> Any:
    function = torchreel.graphed(doubled, **options)
    for _ in range(3):
        function(torch.ones(3))
    assert function.replays() == 1
    return function


@pytest.mark.parametrize("held", KEEPING)
def test_two_outputs_are_kept(held: Any) -> None:
    function = warmed(held=held)
    x, y = torch.randn(3), torch.randn(3)
    first, second = function(x), function(y)
    assert torch.equal(first, doubled(x)) and torch.equal(second, doubled(y))
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize("held", KEEPING)
def test_a_hundred_outputs_stay_right_and_let_go_in_any_order(held: Any) -> None:
    function = warmed(held=held)
    inputs = [torch.randn(3) for _ in range(100)]
    outputs = [function(x) for x in inputs]
    assert all(torch.equal(out, doubled(x)) for out, x in zip(outputs, inputs, strict=True))
    kept = outputs[::3]
    del outputs
    more = [function(x) for x in inputs]
    assert all(torch.equal(out, doubled(x)) for out, x in zip(kept, inputs[::3], strict=True))
    assert all(torch.equal(out, doubled(x)) for out, x in zip(more, inputs, strict=True))


@pytest.mark.parametrize("held", KEEPING)
def test_views_and_arrays_hold_an_output_too(held: Any) -> None:
    function = warmed(held=held)
    inputs = [torch.randn(3) for _ in range(30)]
    views = [(function(x)[1:], function(x).numpy(), function(x).detach().view(3, 1).t()) for x in inputs]
    gc.collect()
    for x, (part, array, turned) in zip(inputs, views, strict=True):
        assert torch.equal(part, doubled(x)[1:])
        assert (array == doubled(x).numpy()).all()
        assert torch.equal(turned, doubled(x).view(1, 3))


def test_what_is_written_into_an_output_stays() -> None:
    function = warmed()
    first = function(torch.ones(3))
    first.fill_(7)
    second = function(torch.ones(3))
    assert first.tolist() == [7, 7, 7] and torch.equal(second, doubled(torch.ones(3)))


def test_error_names_the_function_and_the_line_and_what_to_do() -> None:
    function = warmed(held="error")
    kept = function(torch.ones(3))
    with pytest.raises(HeldOutputError) as caught:
        function(torch.zeros(3))
    message = str(caught.value)
    assert "doubled" in message and "return x.sin() * 2" in message and "test_held.py" in message
    assert "clone()" in message and "mark_step_begin()" in message
    assert torch.equal(kept, doubled(torch.ones(3)))
    del kept
    assert torch.equal(function(torch.zeros(3)), torch.zeros(3))


def test_error_is_for_held_outputs_only() -> None:
    function = warmed(held="error")
    for _ in range(10):
        kept = function(torch.ones(3)).clone()
    assert torch.equal(kept, doubled(torch.ones(3)))


def test_after_a_step_an_old_output_says_so() -> None:
    function = warmed(held="error")
    old = function(torch.ones(3))
    view = old[1:]
    torchreel.mark_step_begin()
    for read in (lambda: old + 1, lambda: view * 2, lambda: old.numpy(), lambda: old[0].item(), lambda: old.clone()):
        with pytest.raises(RuntimeError, match=r"output of .*doubled.* of a step that") as caught:
            read()
        assert "clone()" in str(caught.value)
    assert torch.equal(function(torch.zeros(3)), torch.zeros(3))


@pytest.mark.parametrize("held", KEEPING)
def test_after_a_step_old_outputs_stay_readable_in_other_modes(held: Any) -> None:
    function = warmed(held=held)
    old = function(torch.ones(3))
    torchreel.mark_step_begin()
    new = function(torch.zeros(3))
    assert torch.equal(old, doubled(torch.ones(3))) and torch.equal(new, torch.zeros(3))


def test_output_fed_to_another_function_and_back() -> None:
    first, second = torchreel.graphed(lambda x: x * 2), torchreel.graphed(lambda x: (x + 1).cos())
    x = e = torch.ones(4)
    for step in range(30):
        x, e = second(first(x)), (e * 2 + 1).cos()
        assert torch.equal(x, e), step


def test_output_fed_to_the_function_itself() -> None:
    function = torchreel.graphed(lambda x: (x * 3).sin())
    x = e = torch.ones(4)
    chain = []
    for _ in range(30):
        x, e = function(x), (e * 3).sin()
        chain.append((x, e))
    assert all(torch.equal(a, b) for a, b in chain)


@pytest.mark.parametrize("held", [*KEEPING, "error"])
def test_forwards_that_wait_for_their_backward(held: Any) -> None:
    layer = torch.nn.Linear(3, 2)
    function = torchreel.graphed(lambda x: layer(x).tanh().sum(), held=held)
    inputs = [torch.randn(4, 3, requires_grad=True) for _ in range(5)]
    for _ in range(3):
        function(inputs[0]).backward()
    try:
        losses = [function(x) for x in inputs]
    except HeldOutputError:
        assert held == "error"
        return
    for x, loss in reversed(list(zip(inputs, losses, strict=True))):
        x.grad = None
        loss.backward()
        assert torch.equal(x.grad, torch.autograd.grad(layer(x).tanh().sum(), x)[0])


def test_a_hundred_forwards_that_wait_for_their_backward() -> None:
    layer = torch.nn.Linear(3, 2)
    function = torchreel.graphed(lambda x: layer(x).tanh().sum())
    inputs = [torch.randn(4, 3, requires_grad=True) for _ in range(100)]
    losses = [function(x) for x in inputs]
    for x, loss in zip(inputs, losses, strict=True):
        loss.backward()
        assert torch.equal(x.grad, torch.autograd.grad(layer(x).tanh().sum(), x)[0])


def test_many_functions_that_copy() -> None:
    kept = []
    for number in range(150):
        function = torchreel.graphed(lambda x, number=number: x + number, held="copy")
        kept.append((number, function, [function(torch.ones(2)) for _ in range(5)]))
    assert all(out.tolist() == [number + 1] * 2 for number, _, outputs in kept for out in outputs)


def test_memory_of_dead_outputs_is_used_again() -> None:
    function = torchreel.graphed(lambda x: (x * 2).cumsum(0))
    x = torch.randn(1 << 16)
    for _ in range(5):
        function(x)
    before = graphs.status(function).pool_bytes
    for _ in range(50):
        function(x)
    assert graphs.status(function).pool_bytes == before


def test_a_freed_function_leaves_its_outputs() -> None:
    function = warmed()
    kept = function(torch.ones(3))
    del function
    gc.collect()
    other = torchreel.graphed(lambda x: x - 5)
    for _ in range(6):
        other(torch.ones(3))
    assert torch.equal(kept, doubled(torch.ones(3)))


def test_output_written_before_its_backward_reads_it() -> None:
    weight = torch.ones(3, requires_grad=True)
    function = torchreel.graphed(lambda x: (x * weight).exp())
    for _ in range(3):
        function(torch.ones(3)).sum().backward()
    out = function(torch.ones(3))
    out.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_gradients_after_an_error_within_a_step() -> None:
    table = torch.nn.Embedding(5, 3)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)

    def step(places: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = table(places).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    function = torchreel.graphed(step)
    for _ in range(4):
        function(torch.tensor([1, 2]))
    with pytest.raises(IndexError):
        function(torch.tensor([1, 7]))
    gradient = table.weight.grad
    before = None if gradient is None else gradient.clone()
    other = torchreel.graphed(lambda x: (x @ x).sum(0) * 3)
    for _ in range(4):
        other(torch.randn(8, 8))
    assert gradient is None or torch.equal(gradient, before)
