"""What is measured is replayed: the programs of the benchmarks, and an LSTM, from the third call on."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from benchmarks.graphs_workloads import WORKLOADS

import torchreel
from tests.graphs.programs.test_models import one_thread  # noqa: F401

_CALLS = 6


@pytest.mark.parametrize("name", [name for name in WORKLOADS if not name.startswith("GPT-2")])
def test_workload(name: str) -> None:
    program = WORKLOADS[name].make()
    function = torchreel.graphed(program.function)
    placed = program.placed(function)
    with torch.no_grad() if program.inference else contextlib.nullcontext():
        for _ in range(_CALLS):
            placed(*program.inputs)
    assert function.replays() == _CALLS - 2, torchreel.graphs.status(function)


def test_tokens_of_gpt_2() -> None:
    """The cache is an argument, and stands in the model's output twice: as an item, and as an attribute."""
    pytest.importorskip("transformers")
    expected = WORKLOADS["GPT-2, 64 tokens"].make()
    program = WORKLOADS["GPT-2, 64 tokens"].make()
    function = torchreel.graphed(program.function)
    wanted, placed = expected.placed(expected.function), program.placed(function)
    for _ in range(2):
        assert torch.equal(placed(), wanted())
    assert function.replays() >= 2 * 64 - 8, torchreel.graphs.status(function)


class Cache:
    def __init__(self) -> None:
        self.keys = torch.zeros(3)


def test_an_argument_that_stands_twice_in_the_result() -> None:
    def function(x: torch.Tensor, cache: Cache) -> dict[str, Any]:
        cache.keys.add_(x)
        return {"out": x * cache.keys, "cache": cache, "again": [cache]}

    fast = torchreel.graphed(function)
    for call in range(_CALLS):
        cache, twin, x = Cache(), Cache(), torch.full((3,), float(call))
        found, expected = fast(x, cache), function(x, twin)
        assert found["cache"] is cache and found["again"][0] is cache
        assert torch.equal(found["out"], expected["out"]) and torch.equal(cache.keys, twin.keys)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 6, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def test_inference_of_an_lstm() -> None:
    model = Net().eval()
    fast = torchreel.graphed(model)
    with torch.no_grad():
        for _ in range(_CALLS):
            x = torch.randn(2, 5, 4)
            assert torch.equal(fast(x), model(x))
    assert fast.replays() == _CALLS - 2


def test_step_of_an_lstm() -> None:
    def run(wrap: Any) -> tuple[list[torch.Tensor], Any]:
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        function = wrap(step)
        losses = [function(torch.randn(2, 5, 4), torch.randint(3, (2,))) for _ in range(_CALLS)]
        return [*losses, *model.state_dict().values()], function

    expected, _ = run(lambda function: function)
    found, fast = run(torchreel.graphed)
    assert all(map(torch.equal, found, expected))
    assert fast.replays() == _CALLS - 2
