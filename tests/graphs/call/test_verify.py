"""`verify` and `trust`: what is compared, what a difference does, and what nobody looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchreel
from torchreel.errors import OptionError, VerifyError
from torchreel.graphs import status

X = torch.ones(3)


class _Scale:
    k = 2.0


def _broken() -> tuple[Any, _Scale]:
    """A graph that nobody guards, of a function that does something else from its third call on."""
    scale = _Scale()
    fast = torchreel.graphed(lambda x: (x + 1) * scale.k, trust=True)
    fast(X), fast(X)
    scale.k = 3.0
    return fast, scale


def test_the_first_replay_is_compared_by_default() -> None:
    fast, _ = _broken()
    with pytest.raises(VerifyError, match="aten::mul"):
        fast(X)
    # From then on it is eager's.
    assert fast(X).tolist() == [6, 6, 6]
    assert "aten::mul" in status(fast).skips[0].reason


def test_within_a_recording_a_difference_is_a_mark_and_eagers_result(tmp_path: Path) -> None:
    fast, _ = _broken()
    with torchreel.record(tmp_path / "run.reel"):
        assert fast(X).tolist() == [6, 6, 6]
        assert fast(X).tolist() == [6, 6, 6]
    marks = torchreel.load(tmp_path / "run.reel").marks.column("name").to_pylist()
    assert any("aten::mul" in mark and "test_verify.py" in mark for mark in marks)


def test_a_later_difference_of_what_is_trusted_is_not_seen() -> None:
    scale = _Scale()
    fast = torchreel.graphed(lambda x: x * scale.k, trust=True)
    for _ in range(4):
        fast(X)
    scale.k = 5.0
    assert fast(X).tolist() == [2, 2, 2]
    assert status(fast).guarded == []


def test_derivatives_are_compared_too() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2

    model = nn.Linear(3, 3)
    fast = torchreel.graphed(model)
    for _ in range(4):
        fast(X).sum().backward()
    assert fast.replays() >= 2 and not status(fast).skips
    # One whose backward is Python has none to be compared: it is eager's.
    python = torchreel.graphed(lambda x: Twice.apply(model(x)))
    for _ in range(4):
        python(X).sum().backward()
    assert python.replays() == 0
    assert "autograd.Function" in status(python).skips[0].reason


def test_a_result_that_was_differentiated_inside_says_so() -> None:
    w = torch.ones(3, requires_grad=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        w.grad = None
        loss = (w * x).sum()
        loss.backward()
        return loss

    fast = torchreel.graphed(step)
    for _ in range(4):
        loss = fast(X)
    assert fast.replays() >= 1
    assert loss.requires_grad
    with pytest.raises(RuntimeError, match="second time"):
        (loss * 2).backward()


@pytest.mark.parametrize("value", [-1, "last", 1.5, None])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(OptionError, match="verify"):
        torchreel.graphed(lambda x: x, verify=value)
    with pytest.raises(OptionError, match="trust"):
        torchreel.graphed(lambda x: x, trust=value)
