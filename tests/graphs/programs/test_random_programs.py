"""Random functions in random order, on random shapes, their outputs held and let go at random: the bits of eager.

Each call is made twice, eagerly and through a graph, on tensors of the same values; whatever is held of either is
compared again after each call that could have overwritten it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import torchreel
from tests.graphs.programs.random_functions import function_of, moves, outputs
from tests.tape import outcome

SHAPES = [(3,), (2, 3), (4, 1), (2, 2, 2), (), (1, 5)]
calls = st.lists(
    st.tuples(
        st.integers(0, 4),  # which function
        st.integers(0, 5),  # the shape of its inputs
        st.integers(0, 7),  # whether inputs are outputs of earlier calls
        st.integers(0, 7),  # what is held of the results
        st.integers(0, 7),  # when a backward comes
    ),
    min_size=8,
    max_size=30,
)
functions = st.lists(st.tuples(moves, outputs), min_size=2, max_size=5)
# What fails depends on where memory lies, too: to make it smaller takes minutes and often ends nowhere.
_phases = [Phase.explicit, Phase.reuse, Phase.generate]
_calm = {"deadline": None, "suppress_health_check": list(HealthCheck), "phases": _phases}
some = settings(max_examples=10, derandomize=True, **_calm)
many = settings(max_examples=3000, **_calm)


def bits(value: Any) -> Any:
    """A tensor of one element may have any stride and still be contiguous: of a clone, it has not."""
    dense = torch.contiguous_format
    return outcome.bits(value.detach().clone(memory_format=dense) if torch.is_tensor(value) else value)


class Side:
    """One of the two runs: its functions, its weights, and what it holds."""

    def __init__(self, drawn: Any, graphed: bool, trains: bool) -> None:
        torch.manual_seed(1)
        self.weights = [torch.randn(n).requires_grad_(trains) for n in (1, 3)]
        made = [function_of(steps, returned, self.weights) for steps, returned in drawn]
        self.functions = [torchreel.graphed(function) for function in made] if graphed else made
        self.held: list[Any] = []
        self.last: list[torch.Tensor] = []
        self.waiting: list[torch.Tensor] = []

    def call(self, which: int, shape: tuple[int, ...], fed: int, hold: int, when: int, seed: int, trains: bool) -> Any:
        torch.manual_seed(seed)
        inputs = [torch.randn(shape).requires_grad_(trains and seed % 3 == 0) for _ in range(2)]
        if fed < 2 and self.last:
            inputs[0] = self.last[fed % len(self.last)].detach()
        try:
            out = self.functions[which % len(self.functions)](*inputs)
        except (RuntimeError, IndexError) as error:
            return type(error).__name__
        self.last = [one for one in (out if isinstance(out, tuple) else (out,)) if one.is_floating_point()]
        self._hold(hold, out)
        found = [bits(one) for one in [*self.last, *inputs, torch.get_rng_state()]]
        found += [(one.requires_grad, one.stride()) for one in self.last]
        return found + self._backward(when, inputs) if trains else found

    def _hold(self, how: int, out: Any) -> None:
        if how < 2:
            self.held.append(out)
        elif how == 2:
            self.held.append(self.last[0].detach().numpy())
        elif how == 3:
            self.held.append(self.last[0].detach().view(-1)[:1] if self.last[0].is_contiguous() else None)
        elif how == 4 and self.held:
            del self.held[len(self.held) // 2]
        elif how == 5:
            self.held.clear()

    def _backward(self, when: int, inputs: list[torch.Tensor]) -> list[Any]:
        """At once, later, twice, or never."""
        loss = sum(one.float().sum() for one in self.last if one.requires_grad)
        if isinstance(loss, int):
            return []
        if when < 2:
            self.waiting.append(loss)
        if when == 2:
            loss.backward(retain_graph=True)
        if 2 <= when < 6:
            loss.backward()
        if when == 6 and self.waiting:
            self.waiting.pop(0).backward()
        return [bits(one.grad) for one in [*inputs, *self.weights] if one.is_leaf]

    def kept(self) -> list[Any]:
        leaves = [part for one in self.held for part in (one if isinstance(one, tuple) else (one,))]
        return [bits(torch.as_tensor(one)) for one in leaves if one is not None]


def held_to_eager(drawn: Any, made: Any, trains: bool) -> None:
    ours, theirs = Side(drawn, True, trains), Side(drawn, False, trains)
    with torch.set_grad_enabled(trains):
        for place, (which, shape, fed, hold, when) in enumerate(made):
            seed = place % 7
            arguments = (which, SHAPES[shape], fed, hold, when, seed, trains)
            try:
                wanted = theirs.call(*arguments)
            except RuntimeError as error:
                # Eager has saved what was written since. A graph has a copy of it, and need not refuse.
                assert "modified by an inplace operation" in str(error)
                return
            assert ours.call(*arguments) == wanted, f"call {place}"
            assert ours.kept() == theirs.kept(), f"what was held before call {place}"


@some
@given(functions, calls)
def test_inference(drawn: Any, made: Any) -> None:
    held_to_eager(drawn, made * 3, trains=False)


@some
@given(functions, calls)
def test_training(drawn: Any, made: Any) -> None:
    held_to_eager(drawn, made * 3, trains=True)


@pytest.mark.long
@many
@given(functions, calls)
def test_inference_long(drawn: Any, made: Any) -> None:
    held_to_eager(drawn, made * 3, trains=False)


@pytest.mark.long
@many
@given(functions, calls)
def test_training_long(drawn: Any, made: Any) -> None:
    held_to_eager(drawn, made * 3, trains=True)
