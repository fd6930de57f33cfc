"""Steps of optimizers are counted without anything that the program, a tape or a graph could see."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim import optimizer as optimizers

import torchreel
from tests.record.rows import rows

X = torch.ones(2, 3)


def training_step() -> tuple[Callable[[Tensor], Tensor], torch.optim.Optimizer]:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    return step, optimizer


def linears_by_step(reel: torchreel.Reel) -> list[int | None]:
    found = rows(reel, "select step from ops where name = 'aten::linear' order by start_ns")
    return [row["step"] for row in found]


def test_no_hook_is_in_the_program(tmp_path: Path) -> None:
    step, _ = training_step()
    with torchreel.record(tmp_path / "a.reel"):
        assert not optimizers._global_optimizer_post_hooks and not optimizers._global_optimizer_pre_hooks
        for _ in range(3):
            step(X)
    assert linears_by_step(torchreel.load(tmp_path / "a.reel")) == [0, 1, 2]


def test_a_graphed_training_step_is_replayed_within_a_recording_and_after_it(tmp_path: Path) -> None:
    step, _ = training_step()
    fast = torchreel.graphed(step)
    for _ in range(4):
        fast(X)
    before = fast.replays()
    with torchreel.record(tmp_path / "a.reel"):
        for _ in range(5):
            fast(X)
    assert fast.replays() == before + 5
    fast(X)
    assert fast.replays() == before + 6


@pytest.mark.filterwarnings("ignore:Nobody can tell")
def test_a_tape_that_steps_an_optimizer_is_replayed_within_a_recording(tmp_path: Path) -> None:
    step, _ = training_step()
    tape = torchreel.trace(step, X)
    with torchreel.record(tmp_path / "a.reel"):
        tape.replay(X)
        step(X)
    assert linears_by_step(torchreel.load(tmp_path / "a.reel")) == [0]


def test_another_optimizer_counts_once_the_first_is_gone(tmp_path: Path) -> None:
    step, optimizer = training_step()
    with torchreel.record(tmp_path / "a.reel"):
        other, _ = training_step()
        for _ in range(2):
            step(X)
            other(X)
        del step, optimizer
        gc.collect()
        for _ in range(2):
            other(X)
    assert linears_by_step(torchreel.load(tmp_path / "a.reel")) == [0, 1, 1, 2, 2, 3]


def test_a_step_that_fails_raises_its_own_error(tmp_path: Path) -> None:
    _, optimizer = training_step()

    def closure() -> float:
        raise ZeroDivisionError("mine")

    with torchreel.record(tmp_path / "a.reel"), pytest.raises(ZeroDivisionError, match="mine"):
        optimizer.step(closure)


def test_a_step_that_fails_is_no_step(tmp_path: Path) -> None:
    """GIVEN steps of which every second fails, and one within the handling of an error THEN those that end count."""
    step, optimizer = training_step()
    with torchreel.record(tmp_path / "a.reel"):
        for number in range(4):
            step(X)
            with contextlib.suppress(ZeroDivisionError):
                optimizer.step(lambda: 1 / 0)
            if number == 1:
                try:
                    raise ValueError
                except ValueError:
                    step(X)
    assert linears_by_step(torchreel.load(tmp_path / "a.reel")) == [0, 1, 2, 3, 4]


def test_a_step_within_a_step_of_the_same_optimizer_is_part_of_it(tmp_path: Path) -> None:
    class Twice(torch.optim.SGD):
        def step(self, closure: None = None) -> None:  # type: ignore[override]
            super().step(closure)
            super().step(closure)

    torch.optim.SGD([nn.Parameter(X)], lr=0.1)  # from here on SGD's own step opens a range
    optimizer = Twice([nn.Parameter(X)], lr=0.1)
    with torchreel.record(tmp_path / "a.reel") as recorder:
        for _ in range(3):
            optimizer.step()
    assert not recorder.running
    assert torchreel.load(tmp_path / "a.reel").steps.column("step").to_pylist() == [0, 1, 2, 3]


def test_steps_by_hand_after_those_of_an_optimizer(tmp_path: Path) -> None:
    step, _ = training_step()
    with torchreel.record(tmp_path / "a.reel") as recorder:
        for _ in range(4):
            step(X)
            if _ % 2:
                recorder.step()
    assert linears_by_step(torchreel.load(tmp_path / "a.reel")) == [0, 0, 1, 1]


def test_pausing_does_not_lose_steps(tmp_path: Path) -> None:
    step, _ = training_step()
    with torchreel.record(tmp_path / "a.reel") as recorder:
        step(X)
        recorder.pause()
        step(X)
        recorder.resume()
        step(X)
    assert linears_by_step(torchreel.load(tmp_path / "a.reel")) == [0, 2]
