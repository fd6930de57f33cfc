"""The native follower: what it answers by itself is what the rules would answer, and it keeps nothing alive."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchreel
from torchreel.guards.followed_call import FollowedCall

SCALE = 2.0
TABLE = {"a": [1, 2, 3], "b": {"deep": (1.0, 2.0)}}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)])
        self.scale = 3.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x * self.scale


def _reads_tables(x: torch.Tensor) -> torch.Tensor:
    total = sum(TABLE["a"]) + TABLE["b"]["deep"][1]
    return x * total * SCALE if SCALE is not None and len(TABLE) > 1 else x


def _makes_closures(x: torch.Tensor) -> torch.Tensor:
    factors = [lambda t, k=k: t * k for k in range(1, 3)]
    for factor in factors:
        x = factor(x)
    return x + sum(i for i in range(3))


def _training_step() -> Callable[[torch.Tensor], torch.Tensor]:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def _effect(x: torch.Tensor, kept: list[Any] = []) -> torch.Tensor:  # noqa: B006
    kept.append(1)
    return x


FUNCTIONS: dict[str, Callable[[], Any]] = {
    "tables": lambda: _reads_tables,
    "closures": lambda: _makes_closures,
    "module": Net,
    "step": _training_step,
    "effect": lambda: _effect,
}


def _followed(function: Any, x: torch.Tensor, memo: bool) -> tuple[str, set[str]]:
    call = FollowedCall((x,), {}, [], {}, {}, {})
    call.native.memo = memo
    result = call.run(function, (x,), {})
    call.finish(result, True)
    call.seal([x])
    return call.reason, set(call.sealed.paths()) if call.sealed is not None else set()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_needs_no_rule_is_what_the_rules_say(name: str) -> None:
    # GIVEN a function that has run before
    function, x = FUNCTIONS[name](), torch.ones(2, 4)
    function(x)
    function(x)

    # WHEN its calls are followed with the native answers, and by rules alone
    quick, slow = _followed(function, x, True), _followed(function, x, False)

    # THEN both find the same
    assert quick == slow
    assert bool(quick[0]) == (name == "effect")


def test_nothing_of_the_call_is_kept() -> None:
    class Owner:
        pass

    owner, model = Owner(), Net()
    owner.model = model  # type: ignore[attr-defined]
    names = types.SimpleNamespace(owner=owner)
    fast = torchreel.graphed(lambda x: names.owner.model(x))
    with torch.no_grad():
        for _ in range(4):
            fast(torch.ones(2, 4))
    assert fast.replays() == 2
    gone = [weakref.ref(one) for one in (owner, model)]

    del names.owner
    del owner, model
    torchreel.trace(torch.neg, torch.ones(1))  # the tape has the modules of the last one until there is another
    gc.collect()

    assert [one() for one in gone] == [None, None]


def test_what_a_refused_call_made_is_gone_at_once() -> None:
    made: list[weakref.ref[Any]] = []

    class Made:
        pass

    def function(x: torch.Tensor) -> torch.Tensor:
        one = Made()
        made.append(weakref.ref(one))  # an effect: the call is refused
        return x

    fast = torchreel.graphed(function)
    for _ in range(5):
        fast(torch.ones(2))
    assert [one() for one in made] == [None] * 5


def test_a_trace_function_is_left_alone() -> None:
    seen: list[str] = []

    def trace(frame: Any, event: str, argument: Any) -> None:
        if frame.f_code.co_name == "traced":
            seen.append(event)

    def traced(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    fast = torchreel.graphed(traced)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for _ in range(4):
            fast(torch.ones(2))
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
    assert len(seen) == 4
