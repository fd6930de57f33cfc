"""Training steps of small models, in which torch does little but call ops: what a tape costs cannot hide in them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TrainingStep:
    """A model, its optimizer and a batch; to call it is to take one step."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, seen: Tensor, wanted: Tensor) -> None:
        self.model, self.optimizer, self.seen, self.wanted = model, optimizer, seen, wanted
        self()  # many optimizers make their state in the first step, which is unlike all others
        self._start = [(tensor, tensor.detach().clone()) for tensor in self._state()]

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.model(self.seen), self.wanted).backward()
        self.optimizer.step()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def rewind(self) -> None:
        """Back to the second step, with the same random numbers.

        A model that is trained for thousands of steps gets momenta so small that sums of them take longer.
        """
        for tensor, value in self._start:
            tensor.copy_(value)
        torch.manual_seed(0)

    def _state(self) -> list[Tensor]:
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*self.model.parameters(), *(value for value in kept if isinstance(value, Tensor))]


def mlp() -> TrainingStep:
    """Three layers, 16 samples, SGD."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return TrainingStep(model, optimizer, torch.randn(16, 32), torch.randn(16, 8))


def encoder(fused: bool = False) -> TrainingStep:
    """A transformer of two layers of width 64 with four heads and dropout, 4 sequences of 10 tokens, Adam."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)
    return TrainingStep(model, optimizer, torch.randn(4, 10, 64), torch.randn(4, 10, 8))
