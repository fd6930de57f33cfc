"""Training runs that tests trace: each is made anew from a seed, so that two of them go the same way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from tests.tape.outcome import bits


class Words(torch.nn.Module):
    """An embedding and an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(7, 6)
        self.lstm = torch.nn.LSTM(6, 5, num_layers=2, dropout=0.1, batch_first=True)
        self.head = torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, _ = self.lstm(self.embedding(x))
        return self.head(out[:, -1])


def mlp() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.Dropout(0.2), torch.nn.GELU(), torch.nn.Linear(8, 3)
    )


def convolution() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16, 3)
    )


def encoder() -> torch.nn.Module:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    return torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 2), torch.nn.Flatten(), torch.nn.Linear(32, 3))


NETWORKS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], torch.Tensor]]] = {
    "mlp": (mlp, lambda: torch.randn(4, 6)),
    "convolution": (convolution, lambda: torch.randn(4, 2, 4, 4)),
    "encoder": (encoder, lambda: torch.randn(4, 4, 8)),
    "words": (Words, lambda: torch.randint(7, (4, 5))),
}


@dataclass
class Run:
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    batches: list[tuple[torch.Tensor, torch.Tensor]]

    def state(self) -> dict[str, Any]:
        """All that a step changes."""
        found = {f"model.{name}": bits(value) for name, value in self.model.state_dict().items()}
        found |= {f"{name}.grad": bits(value.grad) for name, value in self.model.named_parameters()}
        for place, state in self.optimizer.state_dict()["state"].items():
            found |= {f"optimizer.{place}.{name}": bits(value) for name, value in state.items()}
        return found | {"random": bits(torch.get_rng_state())}


def make_run(
    network: str = "mlp",
    optimizer_of: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    settings: dict[str, Any] | None = None,
    steps: int = 22,
    make_step: Callable[[torch.nn.Module, torch.optim.Optimizer], Any] | None = None,
) -> Run:
    torch.manual_seed(0)
    make_network, make_input = NETWORKS[network]
    model = make_network()
    optimizer = optimizer_of(model.parameters(), **(settings or {"lr": 0.05}))
    batches = [(make_input(), torch.randint(3, (4,))) for _ in range(steps)]
    return Run(model, optimizer, (make_step or plain_step)(model, optimizer), batches)


def plain_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
