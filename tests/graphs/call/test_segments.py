"""Outputs that others are computed from, and a backward outside of the function: eager's bits, hooks and errors."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import torchreel
from tests.graphs.programs.test_models import Wrap, held_to_eager, one_thread, state_of  # noqa: F401
from tests.tape.outcome import bits
from torchreel import graphs

_STEPS = 8
Use = Callable[[nn.Module, tuple[torch.Tensor, ...], int], Any]


class Classifier(nn.Module):
    """Gives a loss and the logits that it is computed from."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, 7))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = self.body(x)
        return functional.cross_entropy(logits, torch.arange(x.shape[0]) % 7), logits


class Regression(Classifier):
    """Its loss reads the output itself in its backward."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.body(x)
        return functional.mse_loss(found, x.sum(1, keepdim=True).expand(-1, 7)), found


class Plain(Classifier):
    """Its loss keeps nothing for its backward."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.body(x)
        return found.sum(), found


class Chain(nn.Module):
    """Each output but the first is computed from the one before, on two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = []
        for layer in self.layers:
            x = x * 1.5 + torch.tanh(layer(x)) * x if found else layer(x)
            found.append(x)
        return (x.pow(2).mean(), *reversed(found))


class Tied(nn.Module):
    """Its weights are used in both segments, several times in each."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 5) / 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = torch.tanh(torch.tanh(x @ self.weight) @ self.weight.t()) @ self.weight
        return ((torch.sin(hidden @ self.weight) @ self.weight) * self.weight[0]).pow(2).mean(), hidden


class Heads(nn.Module):
    """Two outputs whose backwards share nothing but an input."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.left(x).tanh().pow(2).mean(), self.right(x).tanh()


class Trunk(Heads):
    """Two heads on one trunk: one segment."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return super().forward(self.trunk(x).exp())


class Auxiliary(Classifier):
    """A loss of the hidden state that the logits are computed from, too."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.body[1](self.body[0](x))
        logits = self.body[2](hidden)
        return functional.cross_entropy(logits, torch.arange(x.shape[0]) % 7) + hidden.pow(2).mean(), logits


MODELS = [Classifier, Regression, Plain, Chain, Tied, Heads]
REFUSED = [Auxiliary]


def gradients_of(model: nn.Module) -> list[Any]:
    return [bits(parameter.grad) for parameter in model.parameters()]


def failure_of(call: Callable[[], Any]) -> str:
    """What eager says, up to what it says of its own nodes."""
    try:
        call()
    except RuntimeError as error:
        return str(error)[:60]
    return ""


def by_loss(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    out[0].backward()


def by_all(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    sum((one * (step + 1)).sum() for one in out).backward()  # type: ignore[union-attr]


def by_the_other_alone(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    out[1].backward(torch.full_like(out[1], 0.3 + step))


def by_all_at_once(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    torch.autograd.backward(list(out), [torch.full_like(one, 0.7) for one in out])


def one_after_the_other(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    out[0].backward(retain_graph=True)
    between = gradients_of(model)
    out[1].backward(torch.ones_like(out[1]))
    return between


def one_after_the_other_without_retaining(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    out[0].backward()
    return failure_of(lambda: out[1].backward(torch.ones_like(out[1])))


def the_other_first(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    out[1].backward(torch.ones_like(out[1]))
    return failure_of(lambda: out[0].backward())


def twice(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    out[0].backward(retain_graph=True)
    out[0].backward(retain_graph=step % 2 == 0)


def twice_without_retaining(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    out[0].backward()
    return failure_of(lambda: out[0].backward())


def hooked(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    seen = []
    out[1].register_hook(lambda gradient: seen.append(bits(gradient)))
    out[1].register_hook(lambda gradient: gradient * 1.7)
    out[1].retain_grad()
    (out[0] + out[1].sin().sum()).backward()
    return seen, bits(out[1].grad)


def hooked_parameters(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    seen = []
    hooks = [
        parameter.register_post_accumulate_grad_hook(lambda one, place=place: seen.append((place, bits(one.grad))))
        for place, parameter in enumerate(model.parameters())
    ]
    out[0].backward()
    for hook in hooks:
        hook.remove()
    return sorted(seen, key=lambda pair: int(pair[0]))


def by_autograd(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    """The gradient at the other output, and after that by the parameters."""
    first = torch.autograd.grad(out[0], out[1], retain_graph=True, allow_unused=True)
    second = torch.autograd.grad(out[0], list(model.parameters()), retain_graph=True, allow_unused=True)
    third = torch.autograd.grad(out[1].sum(), list(model.parameters()), allow_unused=True)
    return [bits(one) for one in (*first, *second, *third)]


def by_a_part_and_then_all(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    failure = failure_of(lambda: torch.autograd.grad(out[0], out[1]))
    return failure, failure_of(lambda: out[0].backward())


def written_between(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    with torch.no_grad():
        out[1].mul_(2)
    return failure_of(lambda: out[0].backward())


def written_with_a_history(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    other = out[1]
    failure = failure_of(lambda: other.mul_(2))
    return failure, failure_of(lambda: (out[0] + other.sum()).backward())


def parameters_written_between(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    with torch.no_grad():
        list(model.parameters())[-1].mul_(1.01)
    return failure_of(lambda: out[0].backward())


def with_other_strides(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    gradient = torch.arange(out[1].numel(), dtype=torch.float32).view(out[1].T.shape).T
    out[1].backward(gradient if step > 3 else gradient.contiguous())


def in_autocast(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    with torch.autocast("cpu", enabled=step > 4):
        out[0].backward()


def differentiated_again(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    """A step that comes late, after replays. Last bits may be others, which a warning says."""
    if step < 5:
        return out[0].backward()
    out[1].register_hook(lambda gradient: gradient * 1.7)
    found = torch.autograd.grad(out[0], list(model.parameters()), create_graph=True, allow_unused=True)
    by_output = torch.autograd.grad(out[0], out[1], create_graph=True, allow_unused=True)
    squares = [one.pow(2).sum() for one in (*found, *by_output) if one is not None]
    sum(squares).backward()  # type: ignore[union-attr]
    return [round(one.item(), 3) for one in squares]


USES: list[Use] = [
    by_loss, by_all, by_the_other_alone, by_all_at_once, one_after_the_other, one_after_the_other_without_retaining,
    the_other_first, twice, twice_without_retaining, hooked, hooked_parameters, by_autograd, by_a_part_and_then_all,
    written_between, written_with_a_history, parameters_written_between, with_other_strides, in_autocast,
]  # fmt: skip


# Gradients lie now this way and now that, so that it is recorded anew.
VARYING = [one_after_the_other, by_autograd, with_other_strides, in_autocast, parameters_written_between]


def runs(make: Callable[[], nn.Module], use: Use, clears: bool = True) -> Callable[[Wrap], list[Any]]:
    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        model = make()
        function = wrap(model)
        generator = torch.Generator().manual_seed(1)
        found = []
        for step in range(_STEPS):
            if clears:
                model.zero_grad()
            out = function(torch.randn(6, 5, generator=generator))
            values = [bits(one) for one in out]
            found.append((values, use(model, out, step), gradients_of(model)))
        return found

    return run


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
@pytest.mark.parametrize("make", MODELS)
def test_use(make: Callable[[], nn.Module], use: Use) -> None:
    held_to_eager(runs(make, use), 0 if use is hooked_parameters else 1 if use in VARYING else _STEPS - 3)


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
@pytest.mark.parametrize("make", REFUSED)
def test_use_of_what_is_refused(make: Callable[[], nn.Module], use: Use) -> None:
    held_to_eager(runs(make, use), 0)


def hooked_by_one(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    """Hooks of an output that gets no gradient are not called."""
    seen: list[int] = []
    for place, one in enumerate(out):
        one.register_hook(lambda gradient, place=place: seen.append(place))
    out[step % 2].sum().backward()
    return seen


def hooked_by_all(model: nn.Module, out: tuple[torch.Tensor, ...], step: int) -> Any:
    """In eager's order."""
    seen: list[Any] = []
    for place, one in enumerate(out):
        one.register_hook(lambda gradient, place=place: seen.append((place, bits(gradient))))
    by_all(model, out, step)
    return seen


@pytest.mark.parametrize(
    "use",
    [by_loss, by_all, by_all_at_once, by_the_other_alone, twice, twice_without_retaining, hooked, hooked_by_one,
     hooked_by_all],
)  # fmt: skip
def test_heads_on_one_trunk(use: Use) -> None:
    held_to_eager(runs(Trunk, use), _STEPS - 3)


@pytest.mark.parametrize("make", MODELS)
def test_gradients_add_up_over_calls(make: Callable[[], nn.Module]) -> None:
    held_to_eager(runs(make, by_all, clears=False), _STEPS - 3)


@pytest.mark.filterwarnings("ignore:.*is differentiated again")
@pytest.mark.parametrize("make", MODELS)
def test_differentiated_again(make: Callable[[], nn.Module]) -> None:
    run = runs(make, differentiated_again)
    expected, found = run(lambda function: function), run(torchreel.graphed)
    for step, (wanted, got) in enumerate(zip(expected, found, strict=True)):
        if step < 5:
            assert got == wanted
        assert got[:2] == wanted[:2], f"step {step}"


@pytest.mark.parametrize("make", MODELS)
def test_input_with_a_history(make: Callable[[], nn.Module]) -> None:
    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        model, before = make(), nn.Linear(5, 5)
        function = wrap(model)
        found = []
        for step in range(_STEPS):
            model.zero_grad()
            before.zero_grad()
            inputs = before(torch.randn(6, 5)).sin()
            inputs.retain_grad()
            out = function(inputs)
            seen = hooked(model, out, step)
            found.append((seen, bits(inputs.grad), gradients_of(model), gradients_of(before)))
        return found

    held_to_eager(run, _STEPS - 4)


def test_input_with_a_history_of_what_is_refused() -> None:
    """Also the call that would be recorded has eager's hooks."""

    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        model, before = Auxiliary(), nn.Linear(5, 5)
        function = wrap(model)
        found = []
        for step in range(_STEPS):
            model.zero_grad()
            before.zero_grad()
            seen = hooked(model, function(before(torch.randn(6, 5))), step)
            found.append((seen, gradients_of(model), gradients_of(before)))
        return found

    held_to_eager(run, 0)


@pytest.mark.parametrize("make", MODELS)
def test_training(make: Callable[[], nn.Module]) -> None:
    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        model = make()
        function = wrap(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        found = []
        for _ in range(_STEPS):
            optimizer.zero_grad()
            loss, *_rest = function(torch.randn(6, 5))
            loss.backward()
            optimizer.step()
            found.append((bits(loss), state_of(model)))
        return found

    held_to_eager(run, _STEPS - 3)


@pytest.mark.parametrize("make", MODELS)
def test_calls_that_wait_for_their_backward(make: Callable[[], nn.Module]) -> None:
    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        model = make()
        function = wrap(model)
        found = []
        for count in range(1, 6):
            model.zero_grad()
            waiting = [function(torch.randn(6, 5)) for _ in range(count)]
            for loss, other, *_rest in reversed(waiting):
                (loss * 3 + other.sum()).backward()
            found.append(([bits(one) for out in waiting for one in out], gradients_of(model)))
        return found

    held_to_eager(run, 8)


@pytest.mark.parametrize("make", MODELS)
def test_outputs_that_are_held(make: Callable[[], nn.Module]) -> None:
    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        model = make()
        function = wrap(model)
        held = []
        for step in range(_STEPS):
            loss, other, *_rest = function(torch.randn(6, 5))
            loss.backward()
            held.append(other if step % 2 else loss)
        return [bits(one) for one in held] + gradients_of(model)

    held_to_eager(run, _STEPS - 3)


def test_memory_is_given_back() -> None:
    """Whatever of the outputs is differentiated or dropped."""
    fast = torchreel.graphed(Chain())
    for step in range(12):
        out = fast(torch.randn(6, 5))
        if step % 3 == 0:
            out[0].backward()
        elif step % 3 == 1:
            out[2].sum().backward()
        del out
    gc.collect()
    assert graphs.status(fast).replays >= 6
    before = torchreel._graphs.pool()[1]
    for _ in range(4):
        fast(torch.randn(6, 5))[0].backward()
    assert torchreel._graphs.pool()[1] == before


def test_reason_of_a_refusal() -> None:
    fast = torchreel.graphed(Auxiliary())
    for _ in range(4):
        fast(torch.randn(6, 5))[0].backward()
    assert "was computed from it and from what it came of" in str(graphs.status(fast))


def test_copies_are_apart() -> None:
    """A deep copy of the model has nodes of its own."""
    model = Classifier()
    fast, other = torchreel.graphed(model), copy.deepcopy(model)
    twin = torchreel.graphed(other)
    for _ in range(5):
        x = torch.randn(6, 5)
        for one in (fast, twin):
            one(x)[0].backward()
    assert gradients_of(model) == gradients_of(other)
