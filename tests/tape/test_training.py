"""A training step on tape goes on as the function would: loss, parameters, buffers, optimizer, gradients, generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional

import torchreel
from tests.tape.outcome import bits
from tests.tape.training import NETWORKS, Run, make_run
from torchreel.errors import GuardError, ReplayError

ADAMS = [
    {},
    {"foreach": False},
    {"foreach": True},
    {"fused": True},
    {"fused": True, "capturable": True},  # the CPU has no other way to be capturable
    {"amsgrad": True},
    {"amsgrad": True, "foreach": True},
    {"weight_decay": 0.1},
    {"maximize": True, "betas": (0.8, 0.95), "eps": 1e-6},
]
OPTIMIZERS: list[tuple[Any, dict[str, Any]]] = [
    (torch.optim.SGD, {"lr": 0.05}),
    (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "foreach": True}),
    (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "fused": True}),
    *((torch.optim.Adam, {"lr": 0.01, **settings}) for settings in ADAMS),
    *((torch.optim.AdamW, {"lr": 0.01, **settings}) for settings in ADAMS),
    (torch.optim.RMSprop, {"lr": 0.01}),
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small ops on several threads wait for each other more than they work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def eager(make: Callable[[], Run], steps: int) -> tuple[list[Any], dict[str, Any]]:
    run = make()
    losses = [bits(run.step(*batch)) for batch in run.batches[: steps + 1]]
    return losses, run.state()


def replayed(make: Callable[[], Run], steps: int) -> tuple[list[Any], dict[str, Any]]:
    """One step as it is, one traced, the others from the tape."""
    run = make()
    losses = [bits(run.step(*run.batches[0]))]
    results: list[torch.Tensor] = []

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        results.append(run.step(x, y))
        return results[-1]

    tape = torchreel.trace(step, *run.batches[1])
    losses.append(bits(results.pop()))
    losses += [bits(tape.replay(*batch)) for batch in run.batches[2 : steps + 1]]
    return losses, run.state()


def named(value: Any) -> str:
    if not isinstance(value, dict):
        return value.__name__
    return ",".join(f"{name}={setting}" for name, setting in value.items() if name != "lr") or "plain"


@pytest.mark.parametrize(("optimizer", "settings"), OPTIMIZERS, ids=named)
def test_twenty_replayed_steps_are_twenty_steps(optimizer: Any, settings: dict[str, Any]) -> None:
    def make() -> Run:
        return make_run("mlp", optimizer, settings)

    assert replayed(make, 21) == eager(make, 21)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("settings", [{"foreach": False}, {"fused": True}], ids=named)
def test_networks(network: str, settings: dict[str, Any]) -> None:
    def make() -> Run:
        return make_run(network, torch.optim.AdamW, {"lr": 0.01, **settings})

    assert replayed(make, 21) == eager(make, 21)


@pytest.mark.parametrize("network", NETWORKS)
def test_one_step_from_the_same_state(network: str) -> None:
    # GIVEN the state after a step, and what the next one makes of it
    def make() -> Run:
        run = make_run(network, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9})
        run.step(*run.batches[0])
        return run

    run = make()
    loss = bits(run.step(*run.batches[1]))
    expected = run.state()

    # WHEN a step is traced with another batch, and all is put back to that state
    run = make()
    start = run.state()
    tape = torchreel.trace(run.step, *run.batches[2], hashes=True)
    tape.restore()

    # THEN it is the same state but for the gradients, and the replay makes of it what the function made
    now = run.state()
    assert {name: value for name, value in now.items() if ".grad" not in name} == {
        name: value for name, value in start.items() if ".grad" not in name
    }
    assert bits(tape.replay(*run.batches[1])) == loss
    assert run.state() == expected


def module_zero_grad(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def zeros_kept(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def cleared_at_the_end(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def cleared_by_hand(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None
        return loss.detach()

    return step


def cleared_first_by_hand(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for parameter in model.parameters():
            parameter.grad = None
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def accumulated(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        for half in range(2):
            loss = functional.cross_entropy(model(x[half::2]), y[half::2]) / 2
            loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def clipped(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss.detach() + norm

    return step


def gradients_of_autograd(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = functional.cross_entropy(model(x), y)
        parameters = list(model.parameters())
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter -= 0.05 * gradient
        return loss.detach()

    return step


def by_data(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        for parameter in model.parameters():
            parameter.data.sub_(parameter.grad.data, alpha=0.05)
        return loss.detach()

    return step


def half_precision(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def with_closure(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return step


def two_steps(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for half in range(2):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[half::2]), y[half::2])
            loss.backward()
            optimizer.step()
            total += loss.detach()
        return total

    return step


STEPS = [
    module_zero_grad,
    zeros_kept,
    cleared_at_the_end,
    cleared_by_hand,
    cleared_first_by_hand,
    accumulated,
    clipped,
    gradients_of_autograd,
    by_data,
    half_precision,
    with_closure,
    two_steps,
]


@pytest.mark.parametrize("make_step", STEPS)
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_ways_to_write_a_step(make_step: Any, optimizer: Any) -> None:
    def make() -> Run:
        return make_run("mlp", optimizer, {"lr": 0.05}, make_step=make_step)

    assert replayed(make, 8) == eager(make, 8)


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [(torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adam, {}), (torch.optim.AdamW, {"fused": True})],
    ids=named,
)
def test_the_first_step_is_not_replayed(optimizer: Any, settings: dict[str, Any]) -> None:
    """It makes the optimizer's state, which the second step goes on with."""
    run = make_run("mlp", optimizer, {"lr": 0.01, **settings})
    tape = torchreel.trace(run.step, *run.batches[0])
    before = run.state()

    with pytest.raises(ReplayError, match=r"made optimizer\.model\..* for the optimizer.*trace a later call"):
        tape.replay(*run.batches[1])

    assert run.state() == before
    assert any("for the optimizer" in note for note in tape.program.notes)


def test_the_first_step_of_an_optimizer_without_state_is_replayed() -> None:
    other = make_run()
    losses = [bits(other.step(*batch)) for batch in other.batches[:3]]
    expected = other.state()
    run = make_run()
    tape = torchreel.trace(run.step, *run.batches[0])
    assert [bits(tape.replay(*batch)) for batch in run.batches[1:3]] == losses[1:]
    assert run.state() == expected


def test_an_optimizer_of_the_function_s_own() -> None:
    """Its state is made at each call, and at each replay."""
    weight = torch.nn.Parameter(torch.ones(3))

    def fit(x: torch.Tensor) -> torch.Tensor:
        optimizer = torch.optim.Adam([weight], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (weight * x).pow(2).sum().backward()
            optimizer.step()
        return weight.detach().clone()

    x = torch.tensor([1.0, 2.0, 3.0])
    fit(x)
    expected = bits(fit(x))
    with torch.no_grad():
        weight.fill_(1)
    tape = torchreel.trace(fit, x)
    assert bits(tape.replay(x)) == expected


def test_a_count_that_the_user_s_python_computes_with_is_a_guard() -> None:
    """What a function does with a count of its own is not known to the tape, which says so instead of going on."""
    count, weight = torch.zeros(()), torch.ones(3)

    def step(x: torch.Tensor) -> torch.Tensor:
        count.add_(1)
        weight.sub_(x, alpha=0.1 / count.item())
        return weight.sum()

    tape = torchreel.trace(step, torch.ones(3))
    with pytest.raises(GuardError, match=r"gave 2\. where 1\. was recorded"):
        tape.replay(torch.ones(3))


@pytest.mark.parametrize(
    "kind", ["StepLR", "CosineAnnealingLR", "ReduceLROnPlateau", "SequentialLR", "ChainedScheduler"]
)
def test_a_scheduler_within_the_step_is_not_ignored(kind: str) -> None:
    """It may change the rate at a later step, even if not at this one."""
    from torch.optim import lr_scheduler

    run = make_run()
    one = lr_scheduler.StepLR(run.optimizer, 10)
    schedulers = {
        "StepLR": lambda: one,
        "CosineAnnealingLR": lambda: lr_scheduler.CosineAnnealingLR(run.optimizer, 10),
        "ReduceLROnPlateau": lambda: lr_scheduler.ReduceLROnPlateau(run.optimizer),
        "SequentialLR": lambda: lr_scheduler.SequentialLR(
            run.optimizer, [one, lr_scheduler.ConstantLR(run.optimizer)], [5]
        ),
        "ChainedScheduler": lambda: lr_scheduler.ChainedScheduler([one], run.optimizer),
    }
    scheduler = schedulers[kind]()

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = run.step(x, y)
        scheduler.step(*([1.0] if kind == "ReduceLROnPlateau" else []))
        return loss

    step(*run.batches[0])
    tape = torchreel.trace(step, *run.batches[1])
    with pytest.raises(ReplayError, match=r"A scheduler of the learning rate took a step within the function"):
        tape.replay(*run.batches[2])


def test_a_scheduler_outside_of_the_step() -> None:
    """The tape takes the rate that it left: see test_learning_rates.py."""
    traced, eager = make_run(), make_run()
    schedulers = [torch.optim.lr_scheduler.StepLR(run.optimizer, 2) for run in (traced, eager)]
    torch.manual_seed(9)
    tape = torchreel.trace(traced.step, *traced.batches[0])
    torch.manual_seed(9)
    eager.step(*eager.batches[0])
    for number, batch in enumerate(traced.batches[1:4]):
        losses = []
        for scheduler, step in zip(schedulers, (tape.replay, eager.step), strict=True):
            scheduler.step()
            torch.manual_seed(number)
            losses.append(step(*batch))
        assert torch.equal(*losses)


def test_another_mode_is_not_ignored() -> None:
    run = make_run()
    tape = torchreel.trace(run.step, *run.batches[0])
    run.model.eval()
    with pytest.raises(ReplayError, match=r"was in training mode when the tape was made.*call model\.train\(\) first"):
        tape.replay(*run.batches[1])


def test_gradients_that_would_be_added_to() -> None:
    """The function does not clear them, so a replay must not overwrite them."""
    weight = torch.nn.Parameter(torch.ones(3))

    def step(x: torch.Tensor) -> None:
        (weight * x).sum().backward()

    tape = torchreel.trace(step, torch.ones(3))
    with pytest.raises(ReplayError, match=r"The gradient of weight was None when the tape was made"):
        tape.replay(torch.ones(3))
    weight.grad = None
    tape.replay(torch.full((3,), 2.0))
    assert weight.grad is not None and weight.grad.tolist() == [2.0, 2.0, 2.0]


def test_a_variable_that_the_function_replaces() -> None:
    """Its next call would read the new tensor, a replay the old one."""
    memory = {"h": torch.zeros(3)}

    def step(x: torch.Tensor) -> torch.Tensor:
        memory["h"] = (memory["h"] + x).tanh()
        return memory["h"].sum()

    tape = torchreel.trace(step, torch.ones(3))
    with pytest.raises(ReplayError, match=r"The function read memory\.h, and left a new tensor there.*copy_"):
        tape.replay(torch.ones(3))


def test_a_buffer_that_the_function_replaces() -> None:
    class Average(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            return x - self.mean

    model = Average()
    model(torch.ones(2, 3))
    tape = torchreel.trace(model, torch.ones(2, 3))
    with pytest.raises(ReplayError, match=r"The function read model\.mean, and left a new tensor there"):
        tape.replay(torch.ones(2, 3))


def test_what_is_only_kept_for_a_look_does_no_harm() -> None:
    seen: list[torch.Tensor] = []

    def step(x: torch.Tensor) -> torch.Tensor:
        y = x * torch.tensor(2.0)
        seen.append(y)
        return y + 1

    tape = torchreel.trace(step, torch.ones(3))
    assert tape.replay(torch.full((3,), 2.0)).tolist() == [5.0, 5.0, 5.0]
