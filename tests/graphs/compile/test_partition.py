"""Under torch.compile, ops without fixed memory run between graphs: the bits of eager, in no more parts than needed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from torchreel.graphs import Status, status
from torchreel.graphs.compile.partition import levels, reasons

CALLS = 6


@pytest.fixture(autouse=True)
def _dynamo() -> Iterator[None]:
    """Dynamo keeps ops whose result has a size that depends on values in its graph, instead of breaking it there."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield
    torch._dynamo.reset()


@torch.library.custom_op("torchreel_tests::host", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def host(x: Tensor) -> Tensor:
    """Work that a library does on the host, in memory of its own."""
    return torch.tensor(numpy.sort(x.detach().numpy(), axis=-1))


@host.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def compared(
    function: Callable[..., Any], inputs: Callable[[], tuple[Tensor, ...]], **compiling: Any
) -> tuple[Any, Status]:
    """The compiled function, after calls that were all bitwise eager's; and what became of them."""
    compiled = torch.compile(function, backend="torchreel", fullgraph=True, **compiling)
    for _ in range(CALLS):
        given = inputs()
        before = torch.get_rng_state()
        ours = compiled(*given)
        left = torch.get_rng_state()
        torch.set_rng_state(before)
        theirs = function(*given)
        assert torch.equal(left, torch.get_rng_state())
        ours, theirs = (one if isinstance(one, tuple) else (one,) for one in (ours, theirs))
        assert [one.shape for one in ours] == [one.shape for one in theirs]
        assert all(map(torch.equal, ours, theirs))
    return compiled, status(compiled)


def says(shown: Status, *words: str) -> bool:
    """Whether a line of what runs between graphs has all these words."""
    return any(all(word in line for word in words) for line in shown.between)


def test_a_size_that_depends_on_values_is_between_two_graphs() -> None:
    def function(x: Tensor) -> Tensor:
        y = (x.sin() * 2).relu()
        return torch.masked_select(y, y > 0.5).sum().exp().mul(3).add(1)

    with torch.no_grad():
        _, shown = compared(function, lambda: (torch.randn(40),))
    assert says(shown, "forward runs as 2 graphs")
    assert says(shown, "masked_select", "depends on values", "test_partition.py:")
    assert shown.replays >= 2 * (CALLS - 3)
    assert not shown.skips and not shown.history


def test_nonzero_and_unique() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x.relu() + 1
        return y.tanh(), torch.nonzero(y - 1), torch.unique(x.round()).sum()

    with torch.no_grad():
        _, shown = compared(function, lambda: (torch.randn(5, 7),))
    assert says(shown, "nonzero") and says(shown, "unique")
    assert shown.replays >= CALLS - 3


def test_a_number_that_leaves_for_python() -> None:
    def function(x: Tensor) -> Tensor:
        number = x.cos().argmax().item()
        return (x.sin() + 1).relu() * torch.full((3, 1), number)

    with torch.no_grad():
        _, shown = compared(function, lambda: (torch.randn(9),))
    assert says(shown, "_local_scalar_dense", "a number")
    assert shown.replays >= 2 * (CALLS - 3)
    assert not shown.skips and not shown.history


def test_an_op_that_is_marked_as_unsafe() -> None:
    def function(x: Tensor) -> Tensor:
        return host(x.sin().mul(2)).cos().add(1)

    with torch.no_grad():
        _, shown = compared(function, lambda: (torch.randn(4, 8),))
    assert says(shown, "forward runs as 2 graphs")
    assert says(shown, "host", "unsafe")


def test_ops_that_do_not_need_the_unsafe_one_go_before_it() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        a = host(x.sin())
        b = host(y.cos() + 1)  # in the order of the program there would be a graph between the two
        return (a + b).relu() * (y + 2)

    seen: list[torch.fx.Graph] = []

    def keep(module: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.append(module.graph)
        return module

    from torch._dynamo.backends.common import aot_autograd

    given = (torch.randn(3, 5), torch.randn(3, 5))
    with torch.no_grad():
        torch.compile(function, backend=aot_autograd(fw_compiler=keep), fullgraph=True)(*given)
        graph = seen[0]
        eager = reasons(graph)
        kinds = [node in eager for node in graph.nodes if node.op == "call_function"]
        in_order = 1 + sum(one != other for one, other in itertools.pairwise(kinds))
        assert in_order == 5
        assert len(set(levels(graph, eager).values())) == 3
        _, shown = compared(function, lambda: (torch.randn(3, 5), torch.randn(3, 5)))
    assert says(shown, "forward runs as 2 graphs")


def test_draws_stay_in_their_order() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        a = host(torch.rand_like(x) + x)
        return a * torch.rand_like(a), torch.rand_like(x)

    with torch.no_grad():
        compared(function, lambda: (torch.randn(3, 5),))


def test_buffers_are_written_after_they_are_read() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(6))

        def forward(self, x: Tensor) -> Tensor:
            before = self.total * 2
            self.total += host(x) + 1
            return before + self.total.sin()

    ours, theirs = Counts(), Counts()
    compiled = torch.compile(ours, backend="torchreel", fullgraph=True)
    with torch.no_grad():
        for _ in range(CALLS):
            x = torch.randn(6)
            assert torch.equal(compiled(x), theirs(x))
            assert torch.equal(ours.total, theirs.total)
    assert status(compiled).replays >= CALLS - 3


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        order = host(y.detach())
        return self.second(y * (order > 0.1))


def test_training_is_parted_too() -> None:
    ours, theirs = Gated(), Gated()
    theirs.load_state_dict(ours.state_dict())
    compiled = torch.compile(ours, backend="torchreel", fullgraph=True)
    oracle = torch.compile(theirs, backend="aot_eager", fullgraph=True)
    for _ in range(2 * CALLS):
        x = torch.randn(5, 8)
        for model, call in ((ours, compiled), (theirs, oracle)):
            model.zero_grad()
            loss = call(x).square().mean()
            loss.backward()
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert one.grad is not None and other.grad is not None
            assert torch.equal(one.grad, other.grad)
    shown = status(compiled)
    assert says(shown, "forward runs as 2 graphs")
    assert not says(shown, "backward")  # it needs nothing of the kind, and is one
    assert shown.replays >= 3 * CALLS


def test_held_outputs_of_parts_are_not_overwritten() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.sin() + 1
        return y, host(y).cos()

    compiled = torch.compile(function, backend="torchreel", fullgraph=True)
    held = []
    with torch.no_grad():
        for _ in range(CALLS):
            x = torch.randn(4)
            held.append((compiled(x), function(x)))
        for ours, theirs in held:
            assert all(map(torch.equal, ours, theirs))
