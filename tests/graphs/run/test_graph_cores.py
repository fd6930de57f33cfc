"""Ops that do not need each other run on two cores, and give bit by bit what they give one after the other.

Here they do so wherever they can, and not only where the clock says that it is worth it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._pytree import tree_leaves

import torchreel
from tests.alone import run_alone
from tests.graphs.call.test_threads import together
from tests.graphs.kernels.op_calls import bits
from tests.graphs.programs.random_functions import function_of, moves, outputs
from torchreel import _graphs
from torchreel.errors import OptionError
from torchreel.graphs import status

Function = Callable[..., Any]
_CALLS = 24


@pytest.fixture(autouse=True)
def two_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    _graphs.force_two_cores(True)
    yield
    _graphs.force_two_cores(False)
    torch.set_num_threads(before)


def all_bits(value: Any) -> list[Any]:
    return [bits(leaf) for leaf in tree_leaves(value) if torch.is_tensor(leaf)]


def beside(fast: Any) -> int:
    """How many ops run beside others."""
    return sum(node.beside for node in status(fast).nodes)


def hold(function: Function, *sizes: tuple[int, ...], calls: int = _CALLS) -> Any:
    """Calls it on other numbers each time, holding some of what it gives; gives the graphed function."""
    fast = torchreel.graphed(function, cores=2, verify=0)
    held: list[Any] = []
    for call in range(calls):
        torch.manual_seed(call)
        inputs = [torch.randn(size) for size in sizes]
        copies = [one.clone() for one in inputs]
        with torch.no_grad():
            expected = function(*copies)
            found = fast(*inputs)
        assert all_bits([found, inputs]) == all_bits([expected, copies]), call
        held = [*held, (found, all_bits(found))][-1 - call % 2 :]
        assert all(all_bits(one) == before for one, before in held)
    return fast


def mlp(width: int, depth: int) -> nn.Module:
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers).eval()


class Ensemble(nn.Module):
    def __init__(self, count: int = 6, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.members = nn.ModuleList(mlp(width, depth) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([member(x) for member in self.members]).mean(0)


class Attention(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        parts = [layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in self._projections()]
        mixed = torch.nn.functional.scaled_dot_product_attention(*parts)
        return x + self.out(mixed.transpose(1, 2).flatten(2))

    def _projections(self) -> list[nn.Linear]:
        return [self.query, self.key, self.value]


class Inception(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.one, self.three = nn.Conv2d(width, 4, 1), nn.Conv2d(width, 4, 3, padding=1)
        self.two = nn.Sequential(nn.Conv2d(width, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
        self.pool = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), nn.Conv2d(width, 4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.cat([self.one(x), self.three(x), self.two(x), self.pool(x)], 1))


def many_branches(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([(x * place).sin().exp() + x.roll(place).tanh() for place in range(1, 12)]).sum(0)


def slices_of_one(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Written a row at a time, in one memory; then read as a whole and written again."""
    rows = torch.empty(8, *x.shape)
    for place in range(8):
        rows[place] = (x + place).tanh()
        rows[place].mul_(place)
    whole = rows.sum(0)
    rows[::2].add_(whole)
    rows[1::2].sub_(whole)
    return whole, rows


def written_inputs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    before = (x * 2).sin() + (y * 3).cos()
    x.add_(y.exp())
    y.mul_(0.5)
    return before + x.sigmoid() * y.tanh()


def butterfly(x: torch.Tensor) -> torch.Tensor:
    """Every value is needed by both lanes: as many hand-overs as can be."""
    left, right = x + 1, x - 1
    for _ in range(20):
        left, right = (left * 0.5 + right * 0.25).sin(), (right * 0.5 - left * 0.25).cos()
    return left + right


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (Ensemble, [(8, 64)]),
        (lambda: Ensemble(4, 256, 2), [(8, 256)]),
        (lambda: Ensemble(3, 48, 2), [(1, 48)]),
        (Attention, [(2, 10, 32)]),
        (Inception, [(1, 8, 12, 12)]),
        (lambda: many_branches, [(64,)]),
        (lambda: slices_of_one, [(5, 7)]),
        (lambda: written_inputs, [(33,), (33,)]),
        (lambda: butterfly, [(128,)]),
    ],
    ids=["ensemble", "wide ensemble", "one row", "attention", "inception", "branches", "slices", "inputs", "butterfly"],
)
def test_wide_programs(make: Callable[[], Function], sizes: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    fast = hold(make(), *sizes)
    assert beside(fast) >= 2
    assert "on two cores" in str(status(fast))


def test_large_ops_between_small_ones() -> None:
    """What uses both cores by itself runs while nothing else does."""

    def function(x: torch.Tensor, large: torch.Tensor) -> torch.Tensor:
        small = [(x * place).sin() for place in range(6)]
        wide = (large * 2).sin() + large.tanh()
        return torch.stack([one.exp() for one in small]).sum() * wide.mean() + (wide @ wide).sum()

    assert beside(hold(function, (40,), (300, 300))) >= 2


def test_a_chain_stays_one_after_the_other() -> None:
    model = mlp(32, 6)
    fast = hold(model, (4, 32))
    assert beside(fast) == 0


def test_training_in_one_graph() -> None:
    def side(graphed: bool) -> list[Any]:
        torch.manual_seed(0)
        model = Ensemble(4, 16, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = torchreel.graphed(step, cores=2) if graphed else step
        found = []
        for call in range(_CALLS):
            torch.manual_seed(call)
            found.append(all_bits([run(torch.randn(4, 16), torch.randn(4, 16)), list(model.parameters())]))
        assert not graphed or beside(run) >= 2
        return found

    assert side(True) == side(False)


def test_forward_and_backward() -> None:
    torch.manual_seed(0)
    model = Ensemble(4, 16, 2)
    fast = torchreel.graphed(model, cores=2)
    parameters = list(model.parameters())
    for call in range(_CALLS):
        torch.manual_seed(call)
        x = torch.randn(4, 16, requires_grad=True)
        found = torch.autograd.grad(fast(x).square().sum(), [x, *parameters])
        expected = torch.autograd.grad(model(x).square().sum(), [x, *parameters])
        assert all_bits(found) == all_bits(expected), call
        del found  # what is held would be another branch at each call
    both = {node.part for node in status(fast).nodes if node.beside >= 2}
    assert both == {"forward", "backward"}


def test_what_draws_keeps_its_order() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        parts = [torch.nn.functional.dropout((x * place).sin(), 0.5) for place in range(4)]
        return torch.stack([part.exp() for part in parts]).sum(0)

    fast = torchreel.graphed(function, cores=2)
    x = torch.randn(32)
    for call in range(_CALLS):
        torch.manual_seed(call)
        expected, state = function(x), torch.get_rng_state()
        torch.manual_seed(call)
        assert all_bits([fast(x), torch.get_rng_state()]) == all_bits([expected, state]), call


def test_a_number_that_python_uses() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        left, right = (x * 2).sin(), (x * 3).cos()
        if (left + right).sum().item() > 0:
            return left.exp() + right.tanh()
        return left.tanh() - right.exp()

    hold(function, (64,), calls=40)


def test_an_index_that_is_out_of_range() -> None:
    weight = torch.randn(5, 32)

    def function(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        left, right = (x * 2).sin(), (x * 3).cos()
        rows = torch.nn.functional.embedding(indices, weight)
        return left.exp() + right.tanh() + rows.sum(0)

    fast = torchreel.graphed(function, cores=2)
    good, bad = torch.tensor([0, 3, 4]), torch.tensor([0, 9, 4])
    for call in range(_CALLS):
        x = torch.randn(32)
        if call % 4 == 3:
            with pytest.raises(IndexError):
                fast(x, bad)
        assert all_bits(fast(x, good)) == all_bits(function(x, good))
    assert beside(fast) >= 2


def test_two_threads_of_python() -> None:
    torch.manual_seed(0)
    model = Ensemble(4, 32, 2)
    fast = torchreel.graphed(model, cores=2)

    def work() -> None:
        random = torch.Generator()
        for _ in range(30):
            x = torch.randn(3, 32, generator=random)
            with torch.no_grad():
                assert all_bits(fast(x)) == all_bits(model(x))

    together(work, work)
    assert beside(fast) >= 2


def test_another_number_of_threads() -> None:
    torch.manual_seed(0)
    model = Ensemble(4, 32, 2)
    fast = torchreel.graphed(model, cores=2)
    for threads in (2, 1, 2, 1, 3):
        torch.set_num_threads(threads)
        for _ in range(8):
            x = torch.randn(3, 32)
            with torch.no_grad():
                assert all_bits(fast(x)) == all_bits(model(x))
    assert sorted(node.beside > 0 for node in status(fast).nodes) == [False, True, True]


_ALONE = """
import os, sys, torch, torchreel
from torchreel import _graphs
from tests.graphs.run.test_graph_cores import Ensemble, all_bits, beside
torch.set_num_threads(2)
_graphs.force_two_cores(True)
torch.manual_seed(0)
"""


def test_a_process_that_is_forked() -> None:
    """It has none of the threads of its parent, and must not wait for them."""
    script = """
    model = Ensemble(4, 32, 2)
    fast = torchreel.graphed(model, cores=2)
    x = torch.randn(1, 32)
    with torch.no_grad():
        expected = model(x)
        for _ in range(8):
            fast(x)
        assert beside(fast) >= 2
        child = os.fork()
        if child == 0:
            same = all(torch.equal(fast(x), expected) for _ in range(8))
            os._exit(0 if same else 1)
        assert torch.equal(fast(x), expected)
    print(os.waitpid(child, 0)[1])
    """
    assert run_alone(_ALONE + script.replace("\n    ", "\n")).strip() == "0"


def test_denormal_numbers_that_are_flushed() -> None:
    """Whether they are is a matter of the thread that torch.set_flush_denormal was called in."""
    script = """
    assert torch.set_flush_denormal(True)
    def function(x):
        return torch.stack([x * 1e-20 * place * 1e-20 for place in range(1, 9)])
    fast = torchreel.graphed(function, cores=2)
    x = torch.rand(64) + 1
    expected = function(x)
    for _ in range(10):
        assert all_bits(fast(x)) == all_bits(expected)
    print(beside(fast) >= 2, int(expected.count_nonzero()))
    """
    assert run_alone(_ALONE + script.replace("\n    ", "\n")).split() == ["True", "0"]


def test_cores_that_are_no_number_of_cores() -> None:
    with pytest.raises(OptionError, match="cores is 0: give 1 or 2"):
        torchreel.graphed(many_branches, cores=0)


def test_one_core_is_the_default() -> None:
    fast = torchreel.graphed(many_branches)
    for _ in range(_CALLS):
        fast(torch.randn(64))
    assert beside(fast) == 0


_calm = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.reuse, Phase.generate],
}
_long_moves = st.lists(moves, min_size=1, max_size=4).map(lambda parts: [move for part in parts for move in part])


def hold_random(steps: list[Any], returned: list[int]) -> None:
    torch.manual_seed(1)
    weights = [torch.randn(n) for n in (1, 3)]
    function = function_of(steps, returned, weights)
    fast = torchreel.graphed(function, cores=2, verify=0)
    held: list[Any] = []
    for call in range(8):
        torch.manual_seed(call)
        inputs = [torch.randn(2, 3) for _ in range(3)]
        copies = [one.clone() for one in inputs]
        try:
            torch.manual_seed(call)
            expected = function(*copies)
        except (RuntimeError, IndexError):
            return
        torch.manual_seed(call)
        found = fast(*inputs)
        assert all_bits([found, inputs]) == all_bits([expected, copies]), call
        held = [*held, (found, all_bits(found))][-2:]
        assert all(all_bits(one) == before for one, before in held)


@settings(max_examples=25, derandomize=True, **_calm)
@given(_long_moves, outputs)
def test_random_programs(steps: list[Any], returned: list[int]) -> None:
    hold_random(steps, returned)


@pytest.mark.long
@settings(max_examples=3000, **_calm)
@given(_long_moves, outputs)
def test_many_random_programs(steps: list[Any], returned: list[int]) -> None:
    hold_random(steps, returned)


def race(calls: int) -> None:
    function = butterfly
    fast = torchreel.graphed(function, cores=2)
    inputs = [torch.randn(64) for _ in range(8)]
    expected = [all_bits(function(x)) for x in inputs]
    for call in range(calls):
        assert all_bits(fast(inputs[call % 8])) == expected[call % 8], call
    assert beside(fast) >= 40


def test_no_lane_is_ahead_of_what_it_needs() -> None:
    race(300)


@pytest.mark.long
def test_no_lane_is_ever_ahead_of_what_it_needs() -> None:
    race(200_000)
