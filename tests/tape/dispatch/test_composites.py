"""Ops that torch takes apart above the tape, and that do a part of their work with no op to be seen."""

from __future__ import annotations

import pytest
import torch

import torchreel
from tests.tape.steps import bits
from torchreel.errors import GuardError


def test_max_pool1d_without_gradient_is_taped_whole() -> None:
    first, other = torch.randn(2, 3, 9), torch.randn(2, 3, 9)

    def pool(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.max_pool1d(x, 3)

    tape = torchreel.trace(pool, first)
    assert [op.name for op in tape.program.ops] == ["aten::max_pool1d"]
    assert bits(tape.replay(other)) == bits(pool(other))


def test_max_pool1d_with_gradient_is_taped_in_parts() -> None:
    weight = torch.randn(2, 3, 9, requires_grad=True)

    def gradient(scale: torch.Tensor) -> torch.Tensor:
        out = torch.nn.functional.max_pool1d(weight * scale, 3)
        return torch.autograd.grad(out.sum(), weight)[0]

    tape = torchreel.trace(gradient, torch.ones(()))
    assert "aten::max_pool2d_with_indices" in [op.name for op in tape.program.ops]
    scale = torch.tensor(-2.0)
    assert bits(tape.replay(scale)) == bits(gradient(scale))


def test_points_of_a_sobol_engine_go_on_at_each_replay() -> None:
    def points(engine: torch.quasirandom.SobolEngine) -> torch.Tensor:
        return torch._sobol_engine_draw(
            engine.quasi, 4, engine.sobolstate, engine.dimension, engine.num_generated, dtype=torch.float32
        )[0]

    mine, theirs = (torch.quasirandom.SobolEngine(3, scramble=True, seed=5) for _ in range(2))
    tape = torchreel.trace(points, mine)
    wanted = [points(theirs) for _ in range(3)]
    assert [bits(tape.replay(mine)) for _ in range(2)] == [bits(each) for each in wanted[1:]]


def test_tensors_that_torch_makes_of_numbers_are_on_the_tape() -> None:
    logits = torch.randn(8, 2, 5).log_softmax(2)
    targets = torch.randint(1, 5, (2, 3))

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.ctc_loss(logits, targets, (8, 7), (3, 2))

    tape = torchreel.trace(loss, logits, targets)
    other = torch.randn(8, 2, 5).log_softmax(2)
    assert bits(tape.replay(other, targets)) == bits(loss(other, targets))


def test_lengths_that_ctc_loss_reads_are_a_guard() -> None:
    logits = torch.randn(8, 2, 5).log_softmax(2)
    targets, lengths = torch.randint(1, 5, (2, 3)), torch.tensor([8, 7])
    tape = torchreel.trace(torch.nn.functional.ctc_loss, logits, targets, lengths, torch.tensor([3, 2]))
    with pytest.raises(GuardError, match="torchreel::seen"):
        tape.replay(logits, targets, torch.tensor([8, 6]), torch.tensor([3, 2]))


def test_places_that_tensor_split_reads_are_a_guard() -> None:
    x, places = torch.arange(10.0), torch.tensor([9, 9, 2, 9, 5, 9])[::2][1:]  # with gaps

    def pieces(x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.tensor_split(x, places)

    tape = torchreel.trace(pieces, x, places)
    assert [piece.tolist() for piece in tape.replay(-x, places)] == [piece.tolist() for piece in pieces(-x, places)]
    with pytest.raises(GuardError, match="torchreel::seen"):
        tape.replay(x, torch.tensor([9, 9, 3, 9, 6, 9])[::2][1:])


def test_lists_of_tensors_with_gaps_are_read() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    tape = torchreel.trace(lambda x: x * sum(map(sum, x.t().tolist())), x)
    assert bits(tape.replay(x.clone())) == bits(x * 15)
    with pytest.raises(GuardError):
        tape.replay(x + 1)


def test_a_seed_that_is_set_before_the_first_draw_is_on_the_tape() -> None:
    def draw(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return x + torch.randn(3)

    x = torch.zeros(3)
    wanted = draw(x)
    torch.manual_seed(1)
    tape = torchreel.trace(draw, x)
    torch.manual_seed(2)
    assert bits(tape.replay(x)) == bits(wanted)
