"""Small deterministic programs, to be profiled by torch.profiler and by ours."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional
from torch.profiler import record_function


def train_mlp() -> None:
    """A training step that allocates all that it frees: torch.profiler does not see the free of an older block."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        with record_function("forward"):
            loss = functional.cross_entropy(model(torch.randn(8, 16)), torch.randint(0, 4, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def convolve() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.MaxPool2d(2))
    layers(torch.randn(2, 3, 8, 8)).sum().backward()


def redispatch() -> None:
    """Ops that call an op of their own name: torch.profiler counts some of these pairs once, and some twice."""
    x = torch.ones(4, 4, requires_grad=True)
    ((x / 2).sum(0) / torch.tensor(3.0)).sum().backward()
    torch.var_mean(x.detach(), 0)
    torch.ones(3).std()
    torch.stack([torch.ones(2, dtype=torch.float64).sum(), torch.ones(3, dtype=torch.float64).mean()])


def multiply_lists() -> None:
    tensors = [torch.ones(3), torch.ones(2, 2)]
    torch._foreach_mul_(tensors, 2.0)
    torch._foreach_add_(tensors, tensors, alpha=2)
    torch.cat([tensors[0], tensors[0][:2]])
    torch.einsum("ij,jk->ik", tensors[1], tensors[1]).add(1).mul(tensors[1])
    tensors[0][0].item()


def attend() -> None:
    query = torch.ones(1, 2, 8, 4, requires_grad=True)
    functional.scaled_dot_product_attention(query, query, query).sum().backward()


PROGRAMS: list[Callable[[], None]] = [train_mlp, convolve, redispatch, multiply_lists, attend]
