"""Models of a few ops, of which it is known by heart what they do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import torchreel


class Net(nn.Module):
    """Two linear layers with a relu between."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Calling(nn.Module):
    """Does what it is told, as its forward."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def batch() -> Tensor:
    return torch.ones(2, 4)


def outermost(reel: torchreel.Reel) -> list[str]:
    """The names of the ops that the model itself called, those within other ops left out."""
    query = """select o.name from ops o join ops p on o.parent = p.id and p.kind in ('module', 'backend')
               where o.kind not in ('module', 'backend') order by o.start_ns, o.id"""
    return [row["name"] for row in reel.sql(query).to_pylist()]


def calls(reel: torchreel.Reel) -> list[str]:
    """The names of the calls of the model."""
    query = "select name from ops where kind = 'module' and parent is null order by start_ns, id"
    return [row["name"] for row in reel.sql(query).to_pylist()]


def on_thread(function: Callable[[], Any]) -> Any:
    """What the function gives on a thread of its own; its error is raised here."""
    found: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]
