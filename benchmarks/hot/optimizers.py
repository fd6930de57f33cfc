"""Every optimizer of torch: tensor by tensor, in lists, and fused."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.hot.training import Named

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "maximize": True}),
    ("Adamax", {}),
    ("NAdam", {"momentum_decay": 0.004, "weight_decay": 0.1}),
    ("RAdam", {"weight_decay": 0.1}),
    ("Adadelta", {"weight_decay": 0.1}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("Rprop", {}),
    ("ASGD", {"weight_decay": 0.1}),
    ("Adafactor", {}),
    ("Muon", {}),
    ("LBFGS", {}),
    ("SparseAdam", {}),
]
IN_LISTS = [{"foreach": False}, {"foreach": True}, {"fused": True}]


def programs() -> Named:
    """Each optimizer with each of its implementations."""
    for name, options in OPTIMIZERS:
        for how in IN_LISTS if name not in ("LBFGS", "SparseAdam", "Muon") else [{}]:
            label = " ".join([name, *(f"{key}={value}" for key, value in {**options, **how}.items())])
            yield label, lambda name=name, options={**options, **how}: _optimizer(name, options)


def _optimizer(name: str, options: dict[str, Any]) -> None:
    model = nn.Linear(8, 8, bias=name != "Muon") if name != "SparseAdam" else nn.Embedding(8, 8, sparse=True)
    x = torch.randn(4, 8) if name != "SparseAdam" else torch.randint(0, 8, (4,))
    try:
        optimizer = getattr(torch.optim, name)(model.parameters(), **options)
    except (RuntimeError, TypeError, ValueError):  # not every optimizer has every implementation
        return

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = model(x).square().mean()
        value.backward()
        return value

    for _ in range(3):
        optimizer.step(loss)
