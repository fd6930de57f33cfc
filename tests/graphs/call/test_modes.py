"""What is switched on around a call is part of its key; and how Python gives the arguments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import torchreel

_VECTORCALL = 1 << 11  # Py_TPFLAGS_HAVE_VECTORCALL


@pytest.fixture(autouse=True)
def _precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def test_the_precision_of_matrix_products() -> None:
    weight = torch.randn(64, 64)
    fast = torchreel.graphed(lambda x: x @ weight)
    x = torch.randn(64, 64)
    with torch.no_grad():
        for precision in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(precision)
            for _ in range(3):
                y = fast(x)
            assert torch.equal(y, x @ weight)
    assert len(fast.recordings()) == 3
    assert fast.replays() == 3


def test_python_gives_arguments_without_making_a_tuple() -> None:
    fast = torchreel.graphed(torch.sin)
    assert type(fast).__flags__ & _VECTORCALL
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(3)
            assert torch.equal(fast(x), x.sin())
            assert torch.equal(fast(input=x), x.sin())
            assert torch.equal(fast(*(x,)), x.sin())
            assert torch.equal(fast(**{"input": x}), x.sin())
    assert fast.replays() >= 4
