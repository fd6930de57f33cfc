"""Training steps that tests trace: each is made anew from a seed, so that two of them begin the same."""

from __future__ import annotations

from collections.abc import Callable

import torch

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def training_step(seed: int = 0, dropout: float = 0.0) -> tuple[torch.nn.Module, Step]:
    """A model, and a step of it with momentum."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8),
        torch.nn.ReLU(),
        torch.nn.Dropout(dropout),
        torch.nn.BatchNorm1d(8),
        torch.nn.Linear(8, 3),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    batch = inputs()
    step(*batch)  # the optimizer makes its state
    return model, step


def inputs(seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(5, 6, generator=generator), torch.randint(0, 3, (5,), generator=generator)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().numpy().tobytes()
