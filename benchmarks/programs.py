"""Programs whose memory is measured: training steps with large tensors, and loops that do little but allocate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Step = Callable[[], object]


@dataclass(frozen=True)
class Program:
    """What is built once and then stepped; a window is so many steps to warm up and so many that count."""

    build: Callable[[], Step]
    steps: int
    warm_up: int
    threads: int | None = None  # as many as torch chooses


def _training(model: nn.Module, optimizer: torch.optim.Optimizer, seen: Tensor, wanted: Tensor) -> Step:
    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(seen), wanted)
        loss.backward()
        optimizer.step()

    return step


def _convnet() -> Step:
    """Six layers of 32 channels, whose activations take 33.5 MB each: more than glibc keeps when they are freed."""
    layers: list[nn.Module] = []
    for inputs in (3, 32, 32, 32, 32, 32):
        layers += [nn.Conv2d(inputs, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return _training(model, optimizer, torch.randn(64, 3, 64, 64), torch.randn(64, 10))


def _mlp() -> Step:
    """Four layers of 2,048 units, 256 samples."""
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(2048, 2048), nn.ReLU())))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    return _training(model, optimizer, torch.randn(256, 2048), torch.randn(256, 2048))


def _transformer() -> Step:
    """Four layers of width 256, 8 sequences of 128 tokens."""
    layer = nn.TransformerEncoderLayer(256, 8, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    return _training(model, optimizer, torch.randn(8, 128, 256), torch.randn(8, 128, 256))


def _small_mlp() -> Step:
    """Three layers of 64 units: about 330 tensors in a step, none of which takes long to compute."""
    sizes = ((64, 64), (64, 64), (64, 64))
    model = nn.Sequential(*(layer for size in sizes for layer in (nn.Linear(*size), nn.ReLU())))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
    return _training(model, optimizer, torch.randn(32, 64), torch.randn(32, 64))


def _small_op() -> Step:
    """One sum of 64 numbers."""
    a, b = torch.ones(64), torch.ones(64)
    return lambda: a + b


PROGRAMS = {
    "convnet": Program(_convnet, steps=1, warm_up=1),
    "MLP": Program(_mlp, steps=2, warm_up=1),
    "transformer": Program(_transformer, steps=2, warm_up=1),
    "small MLP": Program(_small_mlp, steps=50, warm_up=10, threads=1),
    "small op": Program(_small_op, steps=20_000, warm_up=2_000, threads=1),
}
