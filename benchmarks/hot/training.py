"""What a training loop and an inference do around a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

Program = Callable[[], object]
Named = Iterator[tuple[str, Program]]


def train(model: nn.Module, loss: Callable[[], torch.Tensor], steps: int = 2) -> None:
    """What a training loop calls around its model."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        value.item()


def ways(model: nn.Module, loss: Callable[[], torch.Tensor], half: bool = True) -> None:
    """Trained, trained under autocast unless it cannot be, and asked without gradients in both ways."""
    train(model.train(), loss)
    if half:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            train(model, loss, steps=1)
    model.eval()
    with torch.no_grad():
        loss()
    with torch.inference_mode():
        loss()
