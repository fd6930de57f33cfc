"""Models and training steps through graphs, beside an eager twin: all that they give, and all that they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional

import torchreel
from tests.tape.outcome import bits
from tests.tape.test_training import OPTIMIZERS, named
from tests.tape.training import NETWORKS, Run, make_run
from torchreel import graphs

_STEPS = 8
Wrap = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small ops on several threads wait for each other more than they work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def eager(function: Any) -> Any:
    return function


class Counted:
    """Wraps functions in graphs, and knows whether they were used."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def __call__(self, function: Any) -> Any:
        self._made.append(torchreel.graphed(function))
        return self._made[-1]

    def replays(self) -> int:
        return sum(one.replays() for one in self._made)

    def explained(self) -> str:
        return "\n".join(str(graphs.status(one)) for one in self._made)


def held_to_eager(run: Callable[[Wrap], list[Any]], replays: int) -> None:
    """`run` wraps its functions and gives what it found at each step."""
    expected = run(eager)
    wrap = Counted()
    found = run(wrap)
    for step, (wanted, got) in enumerate(zip(expected, found, strict=True)):
        assert got == wanted, f"step {step}"
    assert wrap.replays() >= replays, wrap.explained()


class Cells(torch.nn.Module):
    """An LSTM by its cells, with a loop of Python over the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.LSTMCell(5, 6)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.zeros(x.shape[0], 6)
        state = (hidden, hidden)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return self.head(state[0])


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.inner(x, x, x, attn_mask=mask, need_weights=False)[0]


class Pooled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(8, 4, 3, groups=2), torch.nn.GroupNorm(2, 4), torch.nn.SiLU(),
            torch.nn.AdaptiveAvgPool2d(2),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).flatten(1)


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], torch.Tensor]]] = {
    **NETWORKS,
    "deep mlp": (
        lambda: torch.nn.Sequential(*(part for _ in range(5) for part in (torch.nn.Linear(16, 16), torch.nn.Tanh()))),
        lambda: torch.randn(1, 16),
    ),
    "cells": (Cells, lambda: torch.randn(2, 7, 5)),
    "gru": (lambda: torch.nn.GRU(4, 5, bidirectional=True), lambda: torch.randn(6, 2, 4)),
    "attention": (Attention, lambda: torch.randn(2, 5, 8)),
    "pooled": (Pooled, lambda: torch.randn(2, 3, 8, 8)),
    "decoder": (
        lambda: torch.nn.TransformerDecoderLayer(8, 2, 16, activation="gelu", batch_first=True),
        lambda: torch.randn(2, 5, 8),
    ),
}


def called(model: torch.nn.Module, function: Any, x: torch.Tensor) -> torch.Tensor:
    out = function(x, x) if isinstance(model, torch.nn.TransformerDecoderLayer) else function(x)
    return out[0] if isinstance(out, tuple) else out


def state_of(model: torch.nn.Module) -> list[Any]:
    gradients = [parameter.grad for parameter in model.parameters()]
    return [bits(value) for value in [*model.state_dict().values(), *gradients, torch.get_rng_state()]]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "decoder"])
def test_forward(name: str, mode: Any) -> None:
    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        make, inputs = MODELS[name]
        model = make().eval()
        function = wrap(model)
        with mode():
            return [bits(called(model, function, inputs())) for _ in range(_STEPS)]

    held_to_eager(run, _STEPS - 2)


def test_forward_with_parts_of_a_parameter_in_inference_mode() -> None:
    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        make, inputs = MODELS["decoder"]
        model = make().eval()
        function = wrap(model)
        with torch.inference_mode():
            return [bits(called(model, function, inputs())) for _ in range(_STEPS)]

    held_to_eager(run, _STEPS - 2)


@pytest.mark.parametrize("kept", [False, True], ids=["alone", "outputs kept"])
@pytest.mark.parametrize("name", MODELS)
def test_forward_and_backward(name: str, kept: bool) -> None:
    """Forward and backward as two graphs; dropout draws, batch norm counts, and gradients add up in .grad."""

    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        make, inputs = MODELS[name]
        model = make().train()
        function = wrap(model)
        found, outputs = [], []
        for step in range(_STEPS):
            if step % 3 == 0:
                model.zero_grad()
            x = inputs()
            if x.is_floating_point():
                x.requires_grad_()
            out = called(model, function, x)
            (out * torch.randn(out.shape)).sum().backward()
            found.append([bits(out), bits(x.grad), state_of(model)])
            outputs += [out] if kept else []
        return found + [bits(out) for out in outputs]

    held_to_eager(run, _STEPS - 3)


@pytest.mark.parametrize(("optimizer", "settings"), OPTIMIZERS, ids=named)
def test_training_step(optimizer: Any, settings: dict[str, Any]) -> None:
    """Forward, backward and update, in one graph."""
    held_to_eager(lambda wrap: stepped(make_run("mlp", optimizer, settings, _STEPS), wrap), _STEPS - 4)


@pytest.mark.parametrize("network", NETWORKS)
def test_training_step_of_networks(network: str) -> None:
    settings = {"lr": 0.01, "foreach": True}
    held_to_eager(lambda wrap: stepped(make_run(network, torch.optim.AdamW, settings, _STEPS), wrap), _STEPS - 4)


def stepped(run: Run, wrap: Wrap) -> list[Any]:
    step = wrap(run.step)
    return [(bits(step(*batch)), run.state()) for batch in run.batches]


@pytest.mark.parametrize(("optimizer", "settings"), OPTIMIZERS[1:3] + OPTIMIZERS[5:9], ids=named)
def test_eager_optimizer(optimizer: Any, settings: dict[str, Any]) -> None:
    """The model is graphed, and all around it is not."""

    def run(wrap: Wrap) -> list[Any]:
        made = make_run("mlp", optimizer, settings, _STEPS)
        model = wrap(made.model)
        found = []
        for x, y in made.batches:
            made.optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            made.optimizer.step()
            found.append((bits(loss), made.state()))
        return found

    held_to_eager(run, _STEPS - 3)


def test_loss_and_backward_in_the_graph_and_the_optimizer_outside() -> None:
    def run(wrap: Wrap) -> list[Any]:
        made = make_run("convolution", torch.optim.Adam, {"lr": 0.01}, _STEPS)

        def gradients(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            made.optimizer.zero_grad()
            loss = functional.cross_entropy(made.model(x), y)
            loss.backward()
            return loss.detach()

        function = wrap(gradients)
        found = []
        for batch in made.batches:
            loss = function(*batch)
            made.optimizer.step()
            found.append((bits(loss), made.state()))
        return found

    held_to_eager(run, _STEPS - 3)


def test_step_before_backward() -> None:
    """The gradients that a call updates with are those of the call before."""

    def run(wrap: Wrap) -> list[Any]:
        made = make_run("mlp", torch.optim.SGD, {"lr": 0.05}, _STEPS)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            made.optimizer.step()
            made.optimizer.zero_grad()
            loss = functional.cross_entropy(made.model(x), y)
            loss.backward()
            return loss.detach()

        return stepped(Run(made.model, made.optimizer, step, made.batches), wrap)

    held_to_eager(run, 0)


def test_gradients_that_are_set_to_zero_and_added_to() -> None:
    def run(wrap: Wrap) -> list[Any]:
        made = make_run("mlp", torch.optim.SGD, {"lr": 0.05}, _STEPS)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            made.optimizer.zero_grad(set_to_none=False)
            loss = functional.cross_entropy(made.model(x), y)
            loss.backward()
            made.optimizer.step()
            return loss.detach()

        return stepped(Run(made.model, made.optimizer, step, made.batches), wrap)

    held_to_eager(run, 1)


def test_gradients_are_clipped_and_scaled() -> None:
    def run(wrap: Wrap) -> list[Any]:
        made = make_run("words", torch.optim.AdamW, {"lr": 0.01}, _STEPS)

        def step(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            made.optimizer.zero_grad()
            loss = functional.cross_entropy(made.model(x), y, label_smoothing=0.1)
            (loss * 2).backward()
            norm = torch.nn.utils.clip_grad_norm_(made.model.parameters(), 0.5)
            made.optimizer.step()
            return loss.detach(), norm

        function = wrap(step)
        found = []
        for batch in made.batches:
            loss, norm = function(*batch)
            found.append((bits(loss), bits(norm), made.state()))
        return found

    held_to_eager(run, _STEPS - 4)
