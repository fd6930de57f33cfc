"""Programs whose memory is known: each is recorded, and what PyTorch itself says of its tensors is written beside it.

Run in a process of its own, `python -m tests.analyze.memory.programs DIRECTORY`, where no tensors of other tests live.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import torchreel

Optimizers = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Net(nn.Module):
    """Parameters of torch's modules and one of its own, a buffer of its own, and if asked for those of BatchNorm."""

    def __init__(self, recompute: str = "", normalize: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(50, 32)
        self.weight = nn.Parameter(torch.randn(32, 64))
        self.register_buffer("scale", torch.ones(64))
        self.body = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
        self.norm = nn.BatchNorm1d(64) if normalize else nn.Identity()
        self.head = nn.Linear(64, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) @ self.weight * self.scale
        if self.recompute:
            x = checkpoint(self.body, x, use_reentrant=self.recompute == "reentrant")
        else:
            x = self.body(x)
        result: torch.Tensor = self.head(self.norm(x))
        return result


def bytes_of(tensors: Iterable[Any]) -> int:
    storages = [tensor.untyped_storage() for tensor in tensors if isinstance(tensor, torch.Tensor)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def truth(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, int]:
    """What there is of each category whose bytes must be exact."""
    states = [] if optimizer is None else [value for state in optimizer.state.values() for value in state.values()]
    return {
        "parameter": bytes_of(model.parameters()),
        "gradient": bytes_of(parameter.grad for parameter in model.parameters()),
        "optimizer_state": bytes_of(states),
    }


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 4, to_none: bool = True) -> None:
    for _ in range(steps):
        tokens, labels = torch.randint(0, 50, (16,)), torch.randint(0, 10, (16,))
        optimizer.zero_grad(set_to_none=to_none)
        loss = functional.cross_entropy(model(tokens), labels)
        loss.backward()
        optimizer.step()


class CategoryCase:
    """A training, of a model that is made within the recording or before it."""

    def __init__(
        self, optimizer: Optimizers | None, model: Callable[[], nn.Module] = Net, to_none: bool = True
    ) -> None:
        self.optimizer = optimizer
        self.to_none = to_none
        self.model = model

    def make(self) -> tuple[nn.Module, torch.optim.Optimizer | None]:
        model = self.model()
        return model, None if self.optimizer is None else self.optimizer(model.parameters())

    def run(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        if optimizer is not None:
            train(model, optimizer, to_none=self.to_none)
            return
        with torch.no_grad():
            for _ in range(4):
                model(torch.randint(0, 50, (16,)))

    def record(self, path: Path, inside: bool) -> dict[str, int]:
        made = None if inside else self.make()
        with torchreel.record(path, memory=True, stacks=True, modules=True):
            model, optimizer = made or self.make()
            self.run(model, optimizer)
        return truth(model, optimizer)


ADAM: Optimizers = torch.optim.Adam
CATEGORY_CASES = {
    "adam": CategoryCase(ADAM),
    "adam-without-foreach": CategoryCase(partial(torch.optim.Adam, foreach=False)),
    "adam-fused": CategoryCase(partial(torch.optim.Adam, fused=True)),
    "adamw": CategoryCase(torch.optim.AdamW),
    "sgd": CategoryCase(partial(torch.optim.SGD, lr=0.1)),
    "sgd-momentum": CategoryCase(partial(torch.optim.SGD, lr=0.1, momentum=0.9)),
    "rmsprop": CategoryCase(torch.optim.RMSprop),
    "adagrad": CategoryCase(torch.optim.Adagrad),
    "set-to-none-false": CategoryCase(ADAM, to_none=False),
    "checkpoint": CategoryCase(ADAM, partial(Net, recompute="not reentrant")),
    "checkpoint-reentrant": CategoryCase(ADAM, partial(Net, recompute="reentrant")),
    "batch-norm": CategoryCase(ADAM, partial(Net, normalize=True)),
    "lazy": CategoryCase(ADAM, lambda: nn.Sequential(nn.Embedding(50, 32), nn.LazyLinear(10))),
    "copied": CategoryCase(ADAM, lambda: copy.deepcopy(Net())),
    "bfloat16": CategoryCase(ADAM, lambda: nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 10)).bfloat16()),
    "inference": CategoryCase(None),
}


def one_step(path: Path) -> dict[str, int]:
    """A single step, whose categories in the middle of it are known."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256, bias=False), nn.ReLU(), nn.Linear(256, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with torchreel.record(path, memory=True, stacks=True, modules=True):
        batch = torch.randn(32, 64)
        hidden = model[1](model[0](batch))
        loss = model[2](hidden).sum()
        loss.backward()
        optimizer.step()
        temporary = torch.empty(4096)
        del temporary
    return {"input": batch.nbytes, "activation": hidden.nbytes + loss.nbytes}


# Healthy loops: nothing of them may be called a leak.


def loop(path: Path, body: Callable[[int], None], steps: int = 12) -> None:
    with torchreel.record(path, memory=True, stacks=True, modules=True) as recorder:
        for number in range(steps):
            body(number)
            recorder.step()


def adam_state(path: Path) -> None:
    with torchreel.record(path, memory=True, stacks=True, modules=True):
        model = Net()
        train(model, torch.optim.Adam(model.parameters()), steps=12)


def lengths_up_and_down(path: Path) -> None:
    model = nn.Linear(32, 32)
    kept: dict[str, torch.Tensor] = {}

    def body(number: int) -> None:
        kept["output"] = model(torch.randn(64 * (1 + (3 * number) % 5), 32))
        kept["output"].sum().backward()

    loop(path, body)


def replay_buffer(path: Path) -> None:
    """Fills once, in the first six of sixteen steps, and then forgets one for each that comes."""
    buffer: list[torch.Tensor] = []

    def body(number: int) -> None:
        buffer.append(torch.randn(4096))
        del buffer[:-6]

    loop(path, body, steps=16)


def list_of_losses(path: Path) -> None:
    """Scalars, detached: bookkeeping."""
    model, losses = nn.Linear(256, 256), []

    def body(number: int) -> None:
        loss = model(torch.randn(32, 256)).square().mean()
        loss.backward()
        losses.append(loss.detach())

    loop(path, body)


def data_loader(path: Path) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randint(0, 50, (160,)), torch.randint(0, 10, (160,)))
    with torchreel.record(path, memory=True, stacks=True, modules=True):
        for tokens, labels in DataLoader(data, batch_size=16, shuffle=True):
            optimizer.zero_grad()
            functional.cross_entropy(model(tokens), labels).backward()
            optimizer.step()


# Loops that leak. The lines that make what leaks end with the comment `leaks`.


def losses_with_graph(path: Path) -> None:
    """The validation loss of each step is kept with its graph."""
    model, losses = nn.Linear(256, 256), []

    def body(number: int) -> None:
        hidden = model(torch.randn(32, 256)).relu()  # leaks
        losses.append(hidden.square().mean())  # leaks

    loop(path, body)


def cache(path: Path) -> None:
    """A cache whose keys never come again."""
    found: dict[int, torch.Tensor] = {}
    model = nn.Linear(256, 256)

    def body(number: int) -> None:
        model(torch.randn(32, 256)).sum().backward()
        found[number] = torch.zeros(8192)  # leaks

    loop(path, body)


def hidden_state(path: Path) -> None:
    """pytorch#41486: an LSTM on the CPU whose state is carried over with its graph, without optimizer and steps."""
    model = nn.LSTM(64, 128)
    state: tuple[torch.Tensor, torch.Tensor] | None = None
    with torchreel.record(path, memory=True, stacks=True, modules=True):
        for _ in range(12):
            _, state = model(torch.randn(4, 8, 64), state)  # leaks


def grown_by_cat(path: Path) -> None:
    """All predictions in one tensor, made again and larger in each step."""
    predictions = [torch.empty(0)]

    def body(number: int) -> None:
        predictions[0] = torch.cat([predictions[0], torch.randn(1024)])  # leaks

    loop(path, body)


HEALTHY = (adam_state, lengths_up_and_down, replay_buffer, list_of_losses, data_loader)
LEAKING = (losses_with_graph, cache, hidden_state, grown_by_cat)


def main(directory: Path) -> None:
    torch.set_num_threads(1)
    truths: dict[str, dict[str, int]] = {}
    for name, case in CATEGORY_CASES.items():
        for when in ("inside", "before"):
            truths[f"{name}-{when}"] = case.record(directory / f"{name}-{when}.reel", when == "inside")
    truths["one-step"] = one_step(directory / "one-step.reel")
    for program in (*HEALTHY, *LEAKING):
        program(directory / f"{program.__name__}.reel")
    (directory / "truths.json").write_text(json.dumps(truths))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
