"""Very many calls over many paths: no wrong result, and no growth of memory."""

from __future__ import annotations

import gc
import random
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch

import torchreel

_PATHS = 50


def resident() -> int:
    """Bytes of memory that the process has."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) * 1024


def functions(count: int) -> list[tuple[Any, Any]]:
    """Small ones, each of its own: (graphed, eager)."""

    def make(number: int) -> Any:
        weight = torch.randn(4, 4, generator=torch.Generator().manual_seed(number))
        kinds = [
            lambda x: (x @ weight).relu() + number,
            lambda x: (x.sin() * 2, x.sum(0)),
            lambda x: x.softmax(-1).cumsum(0),
            lambda x: torch.cat([x, x * number]),
            lambda x: x * 2 if x.sum() > 0 else x - 1,
            lambda x: x.add(1).t(),
        ]
        return kinds[number % len(kinds)]

    made = [make(number) for number in range(count)]
    return [(torchreel.graphed(one), one) for one in made]


def soak(calls: int, check_every: int) -> tuple[int, int]:
    """Gives the memory after a tenth of the calls and at the end."""
    draw = random.Random(0)
    torch.manual_seed(0)
    pool = functions(_PATHS // 2)  # each on inputs of two shapes: two paths
    inputs = [[torch.randn(rows, 4) for _ in range(7)] for rows in (2, 3)]
    held: deque[Any] = deque(maxlen=5)
    early = 0
    with torch.no_grad():
        for call in range(calls):
            graphed, eager = pool[draw.randrange(len(pool))]
            x = inputs[draw.randrange(2)][draw.randrange(7)]
            out = graphed(x)
            if draw.random() < 0.2:
                held.append((out, eager, x))
            if call % check_every == 0:
                for one, function, given in [(out, eager, x), *held]:
                    for a, b in zip(
                        *(v if isinstance(v, tuple) else (v,) for v in (one, function(given))), strict=True
                    ):
                        assert torch.equal(a, b), call
            if call == calls // 10:
                gc.collect()
                early = resident()
    gc.collect()
    return early, resident()


@pytest.mark.parametrize("calls", [4000, pytest.param(20_000, marks=pytest.mark.long)])
def test_some_thousand_calls(calls: int) -> None:
    early, late = soak(calls, 10)
    assert late < early + (8 << 20)


@pytest.mark.long
def test_a_million_calls() -> None:
    early, late = soak(1_000_000, 100)
    assert late < early + (8 << 20)


def train(steps: int) -> tuple[int, int]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    function = torchreel.graphed(lambda x: model(x).pow(2).sum())
    early, waiting = 0, []
    for step in range(steps):
        x = torch.randn(2 + step % 2, 4)
        loss = function(x)
        if step % 5 == 0:
            waiting.append(loss)
        elif step % 7:
            loss.backward()
        if len(waiting) > 3:
            optimizer.zero_grad()
            waiting.pop(0).backward() if step % 2 else waiting.pop(1)
        if step % 50 == 0:
            assert torch.equal(loss, model(x).pow(2).sum())
        if step == steps // 10:
            early = resident()
    return early, resident()


def test_forwards_and_backwards_in_every_order() -> None:
    early, late = train(4000)
    assert late < early + (8 << 20)


@pytest.mark.long
def test_forwards_and_backwards_in_every_order_for_long() -> None:
    early, late = train(300_000)
    assert late < early + (8 << 20)


@pytest.mark.parametrize("count", [60, pytest.param(300, marks=pytest.mark.long)])
def test_functions_that_come_and_go(count: int) -> None:
    """What a function recorded goes with it."""
    weight = torch.randn(64, 64)

    def once() -> None:
        function = torchreel.graphed(lambda x: (x @ weight).relu())
        with torch.no_grad():
            for _ in range(4):
                function(torch.randn(8, 64))

    for _ in range(20):
        once()
    gc.collect()
    before = resident()
    for _ in range(count):
        once()
    gc.collect()
    assert resident() < before + (16 << 20) * count // 300
