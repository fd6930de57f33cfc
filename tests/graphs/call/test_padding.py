"""pad_to=: few graphs for inputs of many sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchreel import graphed
from torchreel.errors import OptionError
from torchreel.graphs import status


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.stride() == b.stride() and torch.equal(a.detach(), b.detach())


def test_many_sizes_have_few_graphs() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    fast = graphed(double, pad_to={1: 8})
    for size in (3, 5, 8, 1, 7, 2, 12, 16, 9, 11, 4):
        x = torch.randn(2, size)
        assert same(fast(x), double(x))
    shown = status(fast)
    assert len(shown.shapes) == 2  # 8 and 16
    assert shown.replays == 7


def test_sizes_can_be_listed() -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    fast = graphed(rows, pad_to={0: [4, 16]})
    for size in (1, 4, 3, 5, 16, 9):
        x = torch.randn(size, 3)
        assert same(fast(x), rows(x))
    assert status(fast).shapes == ["float32[4, 3]", "float32[16, 3]"]


def test_a_size_beyond_the_largest_is_eager_and_noted() -> None:
    fast = graphed(torch.sin, pad_to={0: [4]})
    with pytest.warns(UserWarning, match="Size 5 of dimension 0 is beyond the largest"):
        fast(torch.randn(5))
    for _ in range(2):
        x = torch.randn(5)
        assert same(fast(x), x.sin())
    assert "Size 5 of dimension 0 is beyond the largest in pad_to={0: [4]}. (3 times)" in str(status(fast))
    assert status(fast).eager == 3


def test_a_dimension_counted_from_the_end() -> None:
    fast = graphed(lambda x, y: x + y, pad_to={-1: 4})
    for size in (3, 2, 3, 4, 1):
        x, y = torch.randn(2, size), torch.randn(size)
        assert same(fast(x, y), x + y)


def test_inputs_that_do_not_agree_run_eagerly() -> None:
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y

    fast = graphed(product, pad_to={1: 8})
    with pytest.warns(UserWarning, match="sizes 3, 5 in dimension 1"):
        fast(torch.randn(2, 3), torch.randn(3, 5))
    for _ in range(2):
        x, y = torch.randn(2, 3), torch.randn(3, 5)
        assert same(fast(x, y), product(x, y))


def test_a_size_of_one_is_broadcast() -> None:
    fast = graphed(torch.add, pad_to={1: 4})
    for size in (3, 2, 3, 4, 1):
        x, y = torch.randn(2, size), torch.randn(2, 1)
        assert same(fast(x, y), x + y)


def test_a_masked_attention() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def encode(x: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        return layer(x, src_key_padding_mask=~real)

    fast = graphed(encode, pad_to={1: 8})
    for size in (5, 3, 8, 6, 7, 2):
        x, real = torch.randn(3, size, 16), torch.ones(3, size, dtype=torch.bool)
        torch.testing.assert_close(fast(x, real), encode(x, real))  # sums over other lengths round differently
    assert len(status(fast).shapes) == 1
    assert status(fast).replays == 4


def test_gradients_pass_through() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    fast = graphed(model, pad_to={0: 8})
    for size in (3, 5, 8, 1, 6):
        x = torch.randn(size, 4, requires_grad=True)
        mine = x.detach().clone().requires_grad_()
        out, expected = fast(x), model(mine)
        torch.testing.assert_close(out, expected)
        model.zero_grad()
        expected.square().sum().backward()
        wanted = [each.grad.clone() for each in model.parameters()]
        model.zero_grad()
        out.square().sum().backward()
        torch.testing.assert_close(x.grad, mine.grad)
        for each, gradient in zip(model.parameters(), wanted, strict=True):
            torch.testing.assert_close(each.grad, gradient)
    assert status(fast).replays >= 3


def test_structures_and_what_is_no_tensor() -> None:
    def pack(batch: dict[str, Any], scale: float) -> dict[str, Any]:
        return {
            "ids": batch["ids"],
            "twice": [batch["ids"] * 2, batch["mask"].clone()],
            "total": batch["ids"].sum() * scale,
        }

    fast = graphed(pack, pad_to={1: 8})
    for size in (3, 5, 8, 1, 6):
        batch = {"ids": torch.arange(2 * size).reshape(2, size), "mask": torch.ones(2, size, dtype=torch.bool)}
        ours, theirs = fast(batch, scale=2.0), pack(batch, scale=2.0)
        assert ours["ids"] is batch["ids"]
        assert same(ours["twice"][0], theirs["twice"][0]) and same(ours["twice"][1], theirs["twice"][1])
        assert same(ours["total"], theirs["total"])


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_inputs_that_are_written_are_written_back(mode: Any) -> None:
    def grow(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return x * 2

    fast = graphed(grow, pad_to={0: 8})
    with mode():
        for size in (3, 5, 8, 1, 6):
            x, y = torch.randn(size), torch.randn(size)
            mine = x.clone()
            expected = grow(mine, y)
            assert same(fast(x, y), expected)
            assert same(x, mine)


def test_outputs_are_dense_and_stay() -> None:
    fast = graphed(torch.neg, pad_to={1: 8})
    kept = []
    for size in (3, 5, 6, 7, 3):
        x = torch.randn(2, size)
        kept.append((fast(x), -x))
        kept[-1][0].view(-1)
    assert all(same(ours, theirs) for ours, theirs in kept)


def test_verified_calls_are_padded_once() -> None:
    fast = graphed(torch.cos, pad_to={0: 4}, verify=2)
    for size in (3, 2, 1, 4, 3, 2, 5):
        x = torch.randn(size)
        assert same(fast(x), x.cos())


@pytest.mark.parametrize("pad_to", [{0: 0}, {0: []}, {0: [4, -1]}, {"0": 4}, {0: 2.5}, {0: "8"}, {True: 4}, 8, [4]])
def test_a_wrong_option_is_a_sentence(pad_to: Any) -> None:
    with pytest.raises(OptionError, match=r"pad_to (has|is) .*Give, for a dimension"):
        graphed(torch.sin, pad_to=pad_to)
