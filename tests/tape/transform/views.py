"""Programs of all kinds, run by eager torch and then again as the text or the graph of their tape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from torchreel.tape.capture.trace import trace
from torchreel.tape.tape import Tape


@dataclass
class Case:
    """A function, its inputs, and the tensors that it changes."""

    function: Callable[..., Any]
    inputs: list[torch.Tensor]
    owners: list[torch.Tensor]


def mlp_and_sgd() -> Case:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return training(model, optimizer, torch.nn.functional.mse_loss, [torch.randn(3, 4), torch.randn(3, 2)])


def encoder_and_adam() -> Case:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return training(model, optimizer, torch.nn.functional.mse_loss, [torch.randn(2, 5, 16), torch.randn(2, 5, 4)])


def encoder_and_fused_adamw() -> Case:
    model = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return training(model, optimizer, torch.nn.functional.mse_loss, [torch.randn(2, 5, 16), torch.randn(2, 5, 16)])


def convolution_and_batch_norm() -> Case:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(64, 5)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    inputs = [torch.randn(2, 3, 6, 6), torch.randint(5, (2,))]
    return training(model, optimizer, torch.nn.functional.cross_entropy, inputs)


def lstm_and_embedding() -> Case:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(7, 6)
            self.lstm = torch.nn.LSTM(6, 8, num_layers=2, dropout=0.1, batch_first=True)
            self.head = torch.nn.Linear(8, 7)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out, _ = self.lstm(self.embedding(x))
            return self.head(out).transpose(1, 2)

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=True)
    inputs = [torch.randint(7, (2, 5)), torch.randint(7, (2, 5))]
    return training(model, optimizer, torch.nn.functional.cross_entropy, inputs)


def training(model: torch.nn.Module, optimizer: Any, loss_of: Any, inputs: list[torch.Tensor]) -> Case:
    def step(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        optimizer.zero_grad()
        out = model(x)
        loss = loss_of(out, y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "out": [out, (out.detach(),)]}

    step(*inputs)  # so that the optimizer has its state
    state = [value for entry in optimizer.state.values() for value in entry.values() if isinstance(value, torch.Tensor)]
    return Case(step, inputs, [*model.parameters(), *model.buffers(), *state])


def views_and_in_place() -> Case:
    kept = torch.zeros(4, 4)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = kept[1:3].t()
        rows.add_(x[:, :2])
        kept.diagonal().fill_(3.0)
        flat = kept.view(-1)
        flat[::5].mul_(2)
        x.transpose_(0, 1).relu_()
        made = torch.empty(2, 2)
        made[0], made[1] = 1.0, x[0, :2]
        torch.add(made, 1.5, out=made)
        grown = torch.empty(0)
        torch.cumsum(x, 0, out=grown)
        return made, grown, x, kept.clone()

    return Case(function, [torch.randn(4, 4)], [kept])


def numbers_that_leave() -> Case:
    limit = torch.tensor(0.5)

    def function(x: torch.Tensor) -> tuple[Any, ...]:
        total = x.abs().sum().item()
        if total > limit.item():
            x = x / total
        count = int((x > 0).sum())
        return x.topk(max(count, 1)).values, total, bool((x > 5).any())

    return Case(function, [torch.tensor([1.0, -2.0, 3.0])], [limit])


def constants_and_factories() -> Case:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        index = torch.tensor([[0, 2], [1, 1]])
        weight = torch.arange(3, dtype=x.dtype) * 0.1
        weight += torch.tensor([1.0, float("inf"), 2.0]).nan_to_num()
        mask = torch.ones(3, dtype=torch.bool)
        mask[1] = False
        table = torch.tensor([float(place) for place in range(100)])
        return [x[index] * weight[index], torch.where(mask, x, -1.0), x**2 + 3 * x + True, table[:3].add(x)]

    return Case(function, [torch.randn(3)], [])


def randomness() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own = torch.Generator().manual_seed(7)
        first = torch.rand(3, generator=own)
        torch.nn.functional.dropout(x, 0.5, inplace=True)
        return first, torch.rand(3, generator=own), torch.randn(2), torch.randperm(5), x.bernoulli()

    return Case(function, [torch.rand(3)], [])


def masks() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[x > 0], x.nonzero(), torch.unique(x), x.masked_select(x < 0)

    return Case(function, [torch.tensor([1.0, -2.0, 3.0, -1.0])], [])


def accumulated_gradients() -> Case:
    weight = torch.randn(3, requires_grad=True)
    weight.grad = torch.ones(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        loss = (weight * x).pow(2).sum()
        loss.backward()
        return loss

    return Case(function, [torch.randn(3)], [weight])


def complex_numbers() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.fft.rfft(x) * (1 + 2j)
        return z.conj() @ z, torch.fft.irfft(z.conj(), n=8), z.imag.neg()

    return Case(function, [torch.randn(8)], [])


def half_precision() -> Case:
    weight = torch.randn(4, 4, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.linear(x, weight).softmax(-1).sum() * 0.5
        loss.backward()
        return loss

    return Case(function, [torch.randn(2, 4)], [weight])


CASES = [
    mlp_and_sgd,
    encoder_and_adam,
    encoder_and_fused_adamw,
    convolution_and_batch_norm,
    lstm_and_embedding,
    views_and_in_place,
    numbers_that_leave,
    constants_and_factories,
    randomness,
    masks,
    accumulated_gradients,
    complex_numbers,
    half_precision,
]


@dataclass
class Before:
    """What a case began with."""

    inputs: list[torch.Tensor]
    owners: list[torch.Tensor]
    gradients: list[torch.Tensor | None]
    random: torch.Tensor


def before(case: Case) -> Before:
    copies = [owner.detach().clone() for owner in case.owners]
    gradients = [None if owner.grad is None else owner.grad.clone() for owner in case.owners]
    return Before([x.clone() for x in case.inputs], copies, gradients, torch.get_rng_state())


def put_back(case: Case, start: Before) -> list[torch.Tensor]:
    """Make all as it was; gives inputs for a call."""
    with torch.no_grad():
        for owner, value, gradient in zip(case.owners, start.owners, start.gradients, strict=True):
            owner.copy_(value)
            if gradient is None or owner.grad is None:
                owner.grad = gradient
            else:
                owner.grad.copy_(gradient)  # in place: the tape may know this very tensor
    torch.set_rng_state(start.random)
    return [x.clone() for x in start.inputs]


def outcome(case: Case, returned: Any) -> list[Any]:
    """Everything that a call gave and changed, to be compared bit by bit."""
    leaves, _ = tree_flatten(returned)
    gradients = [owner.grad for owner in case.owners]
    return [bits(value) for value in (*leaves, *case.owners, *gradients, torch.get_rng_state())]


def bits(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    dense = value.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    content = dense.view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    return value.dtype, tuple(value.shape), content


def traced(case: Case, start: Before) -> tuple[Tape, list[Any]]:
    """The tape of a call, and the outcome of another one that was not traced."""
    expected = outcome(case, case.function(*put_back(case, start)))
    tape = trace(case.function, *put_back(case, start))
    assert outcome(case, None)[1:] == expected[-len(outcome(case, None)) + 1 :]
    return tape, expected
