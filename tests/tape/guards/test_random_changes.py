"""Random programs of several parts, called, traced, replayed and changed at random: each call as eager, or refused."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

import torchreel
from tests.alone import run_alone
from tests.tape.outcome import bits
from torchreel.errors import TapeError

_PROGRAMS = 150
_CALLS = 5


@dataclass
class Part:
    """A step of a program from tensor to tensor, what may be changed about it, and what it leaves."""

    run: Callable[[torch.Tensor], torch.Tensor]
    change: Callable[[], object] = lambda: None
    state: Callable[[], Any] = lambda: None


def plain_number() -> Part:
    box = {"scale": 0.5}
    return Part(lambda x: x * box["scale"], lambda: box.update(scale=box["scale"] + 0.25))


def same_number() -> Part:
    box = {"scale": 0.5}
    return Part(lambda x: x * box["scale"], lambda: box.update(scale=float("0.5")))


def attribute() -> Part:
    box = types.SimpleNamespace(flag=True)
    return Part(lambda x: x.sin() if box.flag else x.cos(), lambda: setattr(box, "flag", not box.flag))


def closure() -> Part:
    shift = 1.0

    def change() -> None:
        nonlocal shift
        shift += 1

    return Part(lambda x: x + shift, change)


def layer() -> Part:
    module: Any = torch.nn.Linear(3, 3)
    return Part(
        lambda x: module(x).detach(),
        lambda: setattr(module, "weight", torch.nn.Parameter(torch.full((3, 3), 0.1))),
        lambda: list(module.parameters()),
    )


def loaded_layer() -> Part:
    module = torch.nn.Linear(3, 3)
    state = {key: value * 0.5 for key, value in module.state_dict().items()}
    return Part(lambda x: module(x).detach(), lambda: module.load_state_dict(state), lambda: list(module.parameters()))


def batch_norm() -> Part:
    module = torch.nn.BatchNorm1d(3)
    return Part(lambda x: module(x).detach(), lambda: module.running_mean.add_(1), lambda: list(module.buffers()))


def memory() -> Part:
    kept = torch.zeros(3)

    def run(x: torch.Tensor) -> torch.Tensor:
        kept.mul_(0.5).add_(x.detach().mean(0))
        return x + kept

    return Part(run, lambda: kept.add_(1), lambda: kept)


def dropout() -> Part:
    return Part(lambda x: functional.dropout(x, 0.3), lambda: torch.rand(7))


def forked() -> Part:
    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng():
            return x + torch.rand(3)

    return Part(run, lambda: torch.manual_seed(5))


def checkpointed() -> Part:
    weight = torch.nn.Parameter(torch.full((3,), 0.7))

    def block(x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x * weight, 0.5)

    def run(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        result = checkpoint(block, x, use_reentrant=False)
        result.sum().backward()
        return result.detach()

    return Part(run, lambda: torch.rand(3), lambda: weight.grad)


def trained() -> Part:
    weight = torch.nn.Parameter(torch.ones(3))
    kinds = [torch.optim.SGD, torch.optim.Adam, torch.optim.NAdam, torch.optim.Adagrad, torch.optim.Adamax]
    optimizer = random.choice(kinds)([weight], lr=0.1)

    def run(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        (weight * x.detach()).pow(2).mean().backward()
        optimizer.step()
        return x * weight.detach()

    return Part(run, lambda: weight.data.mul_(0.5), lambda: [weight, weight.grad, optimizer.state_dict()["state"]])


def accumulated() -> Part:
    weight = torch.nn.Parameter(torch.ones(3))

    def run(x: torch.Tensor) -> torch.Tensor:
        (weight * x.detach()).sum().backward()
        return x * 0.5

    return Part(run, lambda: setattr(weight, "grad", random.choice([None, torch.ones(3)])), lambda: weight.grad)


def looked_at() -> Part:
    seen: list[torch.Tensor] = []
    last: dict[str, torch.Tensor] = {}

    def run(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.sum())
        last["mean"] = x.mean()
        return x

    return Part(run, lambda: None, lambda: [seen, last])


def decided() -> Part:
    return Part(lambda x: x + 1 if x.sum().item() > 0 else x - 1)


def counted() -> Part:
    calls = [0]

    def run(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return x * calls[0]

    return Part(run)


OFTEN = [same_number, loaded_layer, batch_norm, memory, dropout, forked, checkpointed, trained, accumulated, looked_at]
SELDOM = [plain_number, attribute, closure, layer, decided, counted]


@dataclass
class Made:
    function: Callable[[torch.Tensor], torch.Tensor]
    parts: list[Part]

    def outcome(self, result: torch.Tensor) -> Any:
        return tree_map(bits, [result, [part.state() for part in self.parts], torch.get_rng_state()])


def made(seed: int) -> Made:
    random.seed(seed)
    torch.manual_seed(seed)
    makers = random.choices(OFTEN, k=random.randint(1, 4)) + random.choices(SELDOM, k=int(random.random() < 0.3))
    random.shuffle(makers)
    parts = [make() for make in makers]
    steps = [part.run for part in parts]

    def function(x: torch.Tensor) -> torch.Tensor:
        for step in steps:
            x = step(x)
        return x

    return Made(function, parts)


def changes(seed: int) -> list[list[int]]:
    """Before each call: the parts that change."""
    chance = random.Random(seed)
    return [[place for place in range(5) if chance.random() < 0.15] for _ in range(_CALLS)]


def called(program: Made, changing: list[int], seed: int, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    random.seed(seed)
    for place in changing:
        if place < len(program.parts):
            program.parts[place].change()
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
    return program.outcome(function(x))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def replayed(seed: int) -> int:
    """How many calls were replayed, all of them as eager."""
    program = made(seed)
    expected = [called(program, changing, seed + call, program.function) for call, changing in enumerate(changes(seed))]
    program = made(seed)
    for call, changing in enumerate(changes(seed)):
        if call == 2:
            break
        results: list[torch.Tensor] = []
        function = program.function if call == 0 else traced(program, results)
        assert called(program, changing, seed + call, function) == expected[call]
    tape = results_tape(results)
    for call, changing in list(enumerate(changes(seed)))[2:]:
        try:
            found = called(program, changing, seed + call, tape.replay)
        except TapeError:
            return call - 2
        assert found == expected[call], f"program {seed}, call {call}"
    return _CALLS - 2


def traced(program: Made, kept: list[Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    def call(x: torch.Tensor) -> torch.Tensor:
        results: list[torch.Tensor] = []

        def function(given: torch.Tensor) -> torch.Tensor:
            results.append(program.function(given))
            return results[-1]

        kept.append(torchreel.trace(function, x))
        return results.pop()

    return call


def results_tape(kept: list[Any]) -> torchreel.Tape:
    (tape,) = kept
    return tape


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shard", range(5))
def test_random_programs(shard: int) -> None:
    counts = [replayed(seed) for seed in range(shard, _PROGRAMS, 5)]
    assert sum(counts) > len(counts)  # most are replayed, and not refused


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_many_random_programs() -> None:
    assert sum(replayed(seed) for seed in range(1000, 4000)) > 3000


FORKS = """
import torch, torchreel

def forks(x):
    with torch.random.fork_rng():
        inside = torch.rand(3)
    return x + inside, torch.rand(3)

x = torch.ones(3)
tape = torchreel.trace(forks, x)
for seed in (1, 2):
    torch.manual_seed(seed)
    replayed = tape.replay(x)
    torch.manual_seed(seed)
    assert all(map(torch.equal, replayed, forks(x)))
"""


def test_the_first_fork_of_a_process() -> None:
    """torch looks the device's module up once, and keeps it: that is nothing that a replay has to leave."""
    run_alone(FORKS)
