"""Ops that are none of torch's may keep what they are given: it is never overwritten."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchreel
from torchreel import graphs

Keeps = list[Any]


@pytest.fixture
def kept() -> Iterator[Keeps]:
    """What the ops keep: no name of a graphed function leads there."""
    found: Keeps = []
    calls = 0

    def keep_each_third(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            found.append(x)
        return x + 1

    bodies: dict[str, Any] = {
        "keep(Tensor x) -> Tensor": lambda x: found.append(x) or x + 1,
        "keep_view(Tensor x) -> Tensor": lambda x: found.append(x[1:]) or x + 1,
        "keep_array(Tensor x) -> Tensor": lambda x: found.append(x.numpy()) or x + 1,
        "keep_each_third(Tensor x) -> Tensor": keep_each_third,
        "keep_all(Tensor[] xs, Tensor? y) -> Tensor": lambda xs, y: found.append((*xs, y)) or xs[0] + 1,
        "keep_count(Tensor x) -> int": lambda x: found.append(x) or x.numel(),
        "passes(Tensor x) -> Tensor": lambda x: x + 1,
        "unsafe(Tensor x) -> Tensor": lambda x: found.append(x) or x + 1,
    }
    with torch.library._scoped_library("torchreel_kept", "DEF") as made:
        for schema, body in bodies.items():
            made.define(schema, tags=(torch.Tag.cudagraph_unsafe,) if schema.startswith("unsafe") else ())
            made.impl(schema.partition("(")[0], body, "CPU")
        yield found
    found.clear()


def ops() -> Any:
    return torch.ops.torchreel_kept


def values(one: Any) -> list[float]:
    return [float(each) for each in np.asarray(one).ravel()]


@pytest.mark.parametrize("name", ["keep", "keep_view", "keep_array", "keep_each_third"])
@pytest.mark.parametrize("held", ["branch", "copy", "error"])
def test_what_is_kept_stays(kept: Keeps, name: str, held: str) -> None:
    def function(x: Tensor) -> Tensor:
        return getattr(ops(), name)(x * 2) * 3

    def run(called: Any) -> list[list[float]]:
        kept.clear()
        for step in range(39):
            assert torch.equal(called(torch.full((64,), float(step))), torch.full((64,), (step * 2.0 + 1) * 3))
        return [values(one) for one in kept]

    fast = torchreel.graphed(function, trust=True, verify=0, held=held)
    expected = run(function)
    assert run(fast) == expected
    assert graphs.status(fast).replays > 0


def test_an_op_that_keeps_all_is_named_and_given_up(kept: Keeps, caplog: pytest.LogCaptureFixture) -> None:
    fast = torchreel.graphed(lambda x: ops().keep(x * 2) * 3, trust=True, verify=0)
    for _ in range(40):
        fast(torch.ones(64))
    assert len(kept) == 40
    status = graphs.status(fast)
    assert len(status.skips) == 1 and "torchreel_kept::keep" in status.skips[0].reason
    assert "test_loans.py" in status.skips[0].reason and "keeps a tensor that it was given" in status.skips[0].reason
    assert any("keeps a tensor" in record.getMessage() for record in caplog.records)
    assert status.replays + status.eager == 39  # and the recorded one


def test_an_op_that_lets_go_is_replayed_on(kept: Keeps) -> None:
    fast = torchreel.graphed(lambda x: ops().keep(x * 2) * 3, trust=True, verify=0)
    for step in range(50):
        fast(torch.full((8,), float(step)))
        assert values(kept[-1]) == [step * 2.0] * 8
        del kept[:-1]
    status = graphs.status(fast)
    assert status.replays == 48 and not status.skips and len(status.nodes) <= 3


def test_an_op_that_keeps_nothing_has_one_graph(kept: Keeps) -> None:
    fast = torchreel.graphed(lambda x: ops().passes(x * 2) * 3, trust=True, verify=0)
    before = graphs.status(fast).outputs_held
    for _ in range(20):
        fast(torch.ones(64))
    status = graphs.status(fast)
    assert status.replays == 18 and len(status.nodes) == 1 and status.outputs_held == before


def test_an_input_that_is_kept_is_the_callers_own(kept: Keeps) -> None:
    fast = torchreel.graphed(lambda x: ops().keep(x) * 3, trust=True, verify=0)
    for size in (8, 1 << 16):  # copied, and bound where it lies
        given = torch.zeros(size)
        for step in range(8):
            given.fill_(step)
            fast(given)
            assert kept[-1] is given
            kept.clear()
    fast(torch.ones(8))
    last = kept[-1]
    gc.collect()
    fast(torch.zeros(8))
    assert values(last) == [1.0] * 8


def test_a_view_of_an_input_that_is_kept_lies_in_it(kept: Keeps) -> None:
    fast = torchreel.graphed(lambda x: ops().keep(x[2:]) * 3, trust=True, verify=0)
    for step in range(6):
        whole = torch.arange(12.0) + step
        fast(whole[2:])
        assert kept[-1].untyped_storage()._cdata == whole.untyped_storage()._cdata
        assert kept[-1].tolist() == whole[4:].tolist()


def test_an_input_that_is_written_before_it_is_kept(kept: Keeps) -> None:
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return ops().keep(x) * 3

    fast = torchreel.graphed(function, trust=True, verify=0)
    for step in range(8):
        fast(torch.full((4,), float(step)))
    assert [values(one) for one in kept] == [[step + 1.0] * 4 for step in range(8)]


def test_what_is_kept_is_seen_to_be_written_later_in_the_call(kept: Keeps) -> None:
    def function(x: Tensor) -> Tensor:
        hidden = x * 2
        out = ops().keep(hidden)
        hidden.add_(100)
        return out + hidden

    fast = torchreel.graphed(function, trust=True, verify=0)
    for step in range(6):
        fast(torch.full((4,), float(step)))
    assert [values(one) for one in kept] == [[step * 2 + 100.0] * 4 for step in range(6)]


def test_lists_and_optional_tensors_and_numbers(kept: Keeps) -> None:
    def listed(x: Tensor) -> Tensor:
        return ops().keep_all([x * 2, x * 3], x * 4) + 1

    def counted(x: Tensor) -> Tensor:
        return x * ops().keep_count(x * 5)

    for function in (listed, counted):
        kept.clear()
        fast = torchreel.graphed(function, trust=True, verify=0)
        for step in range(6):
            fast(torch.full((4,), float(step)))
        factors = (2, 3, 4) if function is listed else (5,)
        for step, one in enumerate(kept):
            parts = one if isinstance(one, tuple) else (one,)
            assert [values(part) for part in parts] == [[step * float(factor)] * 4 for factor in factors]


def test_memory_that_dies_early_in_a_graph_is_not_used_again_while_it_is_kept(kept: Keeps) -> None:
    def function(x: Tensor) -> Tensor:
        out = ops().keep(x * 2)
        for _ in range(6):
            out = (out * 2).sin() + out.cos()  # takes every free place in the pool
        return out

    fast = torchreel.graphed(function, trust=True, verify=0)
    for step in range(5):
        fast(torch.full((256,), float(step)))
    assert [values(one)[0] for one in kept] == [step * 2.0 for step in range(5)]


def test_in_a_backward(kept: Keeps) -> None:
    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return ops().keep(gradient * 3)

    def step(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        (Kept.apply(leaf) * leaf).sum().backward()
        return leaf.grad

    fast = torchreel.graphed(step, trust=True, verify=0)
    expected = []
    for number in range(12):
        x = torch.full((4,), float(number))
        kept.clear()
        want = step(x)
        expected.append(values(kept[0]))
        kept.clear()
        assert torch.equal(fast(x), want)
        held = kept[-1]
        fast(x + 50)
        assert values(held) == expected[-1]


def test_another_functions_graph_does_not_overwrite_it(kept: Keeps) -> None:
    keeps = torchreel.graphed(lambda x: ops().keep(x * 2) * 3, trust=True, verify=0, held="copy")
    other = torchreel.graphed(lambda x: (x + 7).sin() + (x - 7).cos(), held="copy")
    outputs = []
    for step in range(12):
        outputs += [keeps(torch.full((64,), float(step))), other(torch.full((64,), float(step)))]
    assert [values(one)[0] for one in kept] == [step * 2.0 for step in range(12)]


def test_costs_do_not_overwrite_it(kept: Keeps) -> None:
    fast = torchreel.graphed(lambda x: ops().keep(x * 2) * 3, trust=True, verify=0)
    for _ in range(3):
        fast(torch.ones(4))
    kept.clear()
    for step in range(3):
        fast.costs(torch.full((4,), float(step)))
        assert len(kept) > step
    runs = len(kept) // 3
    assert [values(one) for one in kept] == [[step * 2.0] * 4 for step in range(3) for _ in range(runs)]


def test_an_op_marked_as_unsafe_is_in_no_graph(kept: Keeps) -> None:
    fast = torchreel.graphed(lambda x: ops().unsafe(x * 2) * 3, trust=True)
    for step in range(8):
        fast(torch.full((4,), float(step)))
    assert [values(one) for one in kept] == [[step * 2.0] * 4 for step in range(8)]
    status = graphs.status(fast)
    assert status.replays == 0 and not status.nodes
    assert len(status.skips) == 1 and "torchreel_kept::unsafe" in status.skips[0].reason
    assert "cudagraph_unsafe" in status.skips[0].reason


def test_an_op_marked_as_unsafe_runs_between_graphs_of_compiled_code(kept: Keeps) -> None:
    torch._dynamo.reset()
    torch.library.register_fake("torchreel_kept::unsafe", lambda x: torch.empty_like(x))
    fast = torch.compile(lambda x: ops().unsafe(x * 2) * 3, backend="torchreel")
    for step in range(8):
        assert torch.equal(fast(torch.full((4,), float(step))), torch.full((4,), (step * 2.0 + 1) * 3))
    assert [values(one) for one in kept] == [[step * 2.0] * 4 for step in range(8)]
    assert any("unsafe" in line for line in graphs.status(fast).between)
