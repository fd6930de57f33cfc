"""Graphs and their memory are given back; steps are marked by torch's own name; errors name the program's lines."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import torchreel
from torchreel import graphs
from torchreel.errors import GraphError

BIG = 1 << 20


def large(x: Tensor) -> Tensor:
    return ((x + 1) * 2).sin()


def warm(function: Any, *args: Tensor) -> Any:
    for _ in range(3):
        result = function(*args)
    return result


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_reset_gives_the_memory_back() -> None:
    graphs.reset()
    rest = graphs.pool_bytes()  # what others hold
    fast = torchreel.graphed(large, verify=0)
    x = torch.zeros(16 * BIG)
    warm(fast, x)
    assert graphs.pool_bytes() >= 64 * BIG
    before = resident()
    graphs.reset()
    assert graphs.pool_bytes() <= rest and graphs.status(fast).nodes == [] and graphs.status(fast).shapes == []
    assert before - resident() > 48 * BIG


def test_functions_are_recorded_anew_after_a_reset() -> None:
    fast = torchreel.graphed(large)
    x = torch.randn(5)
    for _ in range(3):
        for _ in range(4):
            assert torch.equal(fast(x), large(x))
        assert len(graphs.status(fast).nodes) == 1
        graphs.reset()
    assert graphs.status(fast).replays == 6  # they are counted on


def test_what_is_held_survives() -> None:
    fast = torchreel.graphed(large)
    x, y = torch.randn(BIG), torch.randn(BIG)
    held = warm(fast, x)
    held = fast(x)
    graphs.reset()
    assert graphs.pool_bytes() >= 4 * BIG
    for _ in range(4):
        fast(y)
    assert torch.equal(held, large(x))
    del held
    graphs.reset()


def test_a_backward_after_a_reset() -> None:
    weight = torch.randn(64, 64, requires_grad=True)

    def forward(x: Tensor) -> Tensor:
        return (x @ weight).tanh()

    fast = torchreel.graphed(forward)
    x = torch.randn(8, 64)
    for _ in range(4):
        weight.grad = None
        fast(x).sum().backward()
    weight.grad = None
    out = fast(x)
    graphs.reset()
    other = torchreel.graphed(large)
    warm(other, torch.randn(4 * BIG))
    out.sum().backward()
    found, weight.grad = weight.grad, None
    forward(x).sum().backward()
    assert torch.equal(found, weight.grad)


def test_a_backward_that_is_not_the_recorded_one_says_what_happened() -> None:
    fast = torchreel.graphed(large)
    x = torch.ones(3, requires_grad=True)
    for _ in range(4):
        fast(x).sum().backward()
    out = fast(x)
    graphs.reset()
    with pytest.raises(GraphError, match=r"graphs\.reset\(\) was called"):
        torch.autograd.grad(out.sum(), x, create_graph=True)


def test_reset_reaches_the_pools_of_other_threads() -> None:
    fast = torchreel.graphed(large)
    ready, over = threading.Event(), threading.Event()

    def run() -> None:
        warm(fast, torch.zeros(8 * BIG))
        ready.set()
        over.wait()
        warm(fast, torch.zeros(8 * BIG))

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    assert graphs.pool_bytes() >= 32 * BIG
    graphs.reset()
    assert graphs.pool_bytes() < 8 * BIG
    over.set()
    thread.join()


def test_reset_within_a_graph_is_an_error() -> None:
    raised: list[BaseException] = []

    def resetting(x: Tensor) -> Tensor:
        try:
            graphs.reset()
        except GraphError as error:
            raised.append(error)
        return x + 1

    with torch.library._scoped_library("torchreel_reset", "DEF") as library:
        library.define("resetting(Tensor x) -> Tensor")
        library.impl("resetting", resetting, "CPU")
        fast = torchreel.graphed(lambda x: torch.ops.torchreel_reset.resetting(x * 2), trust=True, verify=0, warm_up=0)
        for _ in range(4):
            assert torch.equal(fast(torch.ones(2)), torch.full((2,), 3.0))
    assert raised and "outside of graphed functions" in str(raised[0])


def test_dynamos_reset_drops_what_it_compiled_and_nothing_else() -> None:
    torch._dynamo.reset()
    mine = torchreel.graphed(large)
    warm(mine, torch.ones(3))
    fast = torch.compile(large, backend="torchreel")
    for _ in range(4):
        fast(torch.ones(3))
    assert graphs.status(fast).nodes
    torch._dynamo.reset()
    assert not graphs.status(fast).nodes and graphs.status(mine).nodes
    for _ in range(4):
        assert torch.equal(fast(torch.ones(3)), large(torch.ones(3)))


# Steps


def test_torchs_own_mark_of_a_step() -> None:
    fast = torchreel.graphed(large, held="error")
    kept = warm(fast, torch.ones(3))
    kept = fast(torch.ones(3))
    torch.compiler.cudagraph_mark_step_begin()
    with pytest.raises(RuntimeError, match="mark_step_begin"):
        kept.sum()
    assert torch.equal(fast(torch.zeros(3)), large(torch.zeros(3)))
    from torch._inductor import cudagraph_trees

    before = cudagraph_trees.MarkStepBox.mark_step_counter
    torch.compiler.cudagraph_mark_step_begin()
    assert cudagraph_trees.MarkStepBox.mark_step_counter == before - 1


def test_torchs_mark_within_compiled_code() -> None:
    torch._dynamo.reset()

    def marked(x: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        return x + 1

    torchreel.graphed(large)
    fast = torch.compile(marked, backend="torchreel")
    for _ in range(4):
        assert torch.equal(fast(torch.ones(2)), torch.full((2,), 2.0))


# Lines


@pytest.mark.parametrize("trains", [False, True])
def test_an_output_of_an_ended_step_of_compiled_code_names_the_programs_line(trains: bool) -> None:
    torch._dynamo.reset()

    def program(x: Tensor) -> Tensor:
        hidden = x * 2
        return hidden.sin() + 1  # this line

    fast = torch.compile(program, backend="torchreel", options={"held": "error"})
    x = torch.ones(5, requires_grad=trains)
    for _ in range(5):
        kept = fast(x).detach()
        torchreel.mark_step_begin()
    with pytest.raises(RuntimeError) as raised:
        kept.tolist()
    text = str(raised.value)
    assert re.search(r"test_resetting\.py:\d+ in program: return hidden\.sin\(\) \+ 1", text)
    assert "eval_with_key" not in text and "proxy_tensor" not in text


def test_a_held_output_of_compiled_code_names_the_programs_line() -> None:
    torch._dynamo.reset()

    def program(x: Tensor) -> Tensor:
        return x.sin() + 1

    fast = torch.compile(program, backend="torchreel", options={"held": "error"})
    kept = []
    with pytest.raises(torchreel.errors.HeldOutputError, match=r"test_resetting\.py:\d+ in program"):
        for _ in range(6):
            kept.append(fast(torch.ones(3)))


def test_a_skip_of_compiled_code_names_the_programs_line() -> None:
    torch._dynamo.reset()

    def program(x: Tensor) -> Tensor:
        return torch.nonzero(x * 2) + 1

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        fast = torch.compile(program, backend="torchreel", fullgraph=True)
        for _ in range(4):
            fast(torch.ones(3))
    assert any(re.search(r"nonzero.*test_resetting\.py:\d+ in program", line) for line in graphs.status(fast).between)


def test_a_warning_names_the_callers_line() -> None:
    fast = torchreel.graphed(large, limit=1)
    fast(torch.ones(1))
    with pytest.warns(UserWarning, match="has been called in") as told:
        fast(torch.ones(2))
    assert told[0].filename == __file__
