"""A tape takes the learning rate that an optimizer has now: its steps are eager's, bit for bit, whoever changes it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

import torchreel
from torchreel.errors import GuardError

RATE = 0.01

KINDS: dict[str, Callable[..., Any]] = {
    "SGD": lambda params, **how: optim.SGD(params, RATE, **how),
    "SGD with momentum": lambda params, **how: optim.SGD(
        params, RATE, momentum=0.9, nesterov=True, weight_decay=RATE, **how
    ),
    "Adam": lambda params, **how: optim.Adam(params, RATE, amsgrad=True, weight_decay=RATE, **how),
    "AdamW": lambda params, **how: optim.AdamW(params, RATE, weight_decay=RATE, **how),
    "Adagrad": lambda params, **how: optim.Adagrad(params, RATE, lr_decay=0.1, weight_decay=RATE, **how),
    "NAdam": lambda params, **how: optim.NAdam(params, RATE, weight_decay=0.1, decoupled_weight_decay=True, **how),
    "RAdam": lambda params, **how: optim.RAdam(params, RATE, weight_decay=0.1, decoupled_weight_decay=True, **how),
    "Adamax": lambda params, **how: optim.Adamax(params, RATE, weight_decay=0.1, **how),
    "ASGD": lambda params, **how: optim.ASGD(params, RATE, weight_decay=0.1, **how),
    "RMSprop": lambda params, **how: optim.RMSprop(params, RATE, momentum=0.9, centered=True, **how),
    "RMSprop without momentum": lambda params, **how: optim.RMSprop(params, RATE, **how),
    "Adadelta": lambda params, **how: optim.Adadelta(params, RATE, weight_decay=0.1, **how),
}
WAYS: dict[str, dict[str, bool]] = {
    "single": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
FUSED = ("SGD", "SGD with momentum", "Adam", "AdamW", "Adagrad")


class Training:
    def __init__(self, make: Callable[..., Any], **how: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 3)
        self.optimizer = make(self.model.parameters(), **how)

    def step(self, x: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.model(x).square().sum()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def state(self) -> list[Tensor]:
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*self.model.parameters(), *(value for value in kept if isinstance(value, Tensor))]


def same(one: Training, other: Training) -> bool:
    return all(map(torch.equal, one.state(), other.state()))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_scheduler_changes_it_at_each_step(kind: str, way: str) -> None:
    if way == "fused" and kind not in FUSED:
        pytest.skip("There is no such kernel.")
    traced, eager = (Training(KINDS[kind], **WAYS[way]) for _ in range(2))
    schedulers = [optim.lr_scheduler.ExponentialLR(one.optimizer, 0.8) for one in (traced, eager)]
    for _ in range(6):  # RAdam does something else in its first steps
        x = torch.randn(5, 4)
        assert torch.equal(traced.step(x), eager.step(x))
    x = torch.randn(5, 4)
    tape = torchreel.trace(traced.step, x)
    eager.step(x)
    for _ in range(6):
        for scheduler in schedulers:
            scheduler.step()
        x = torch.randn(5, 4)
        assert torch.equal(tape.replay(x), eager.step(x))
        assert same(traced, eager)


@pytest.mark.parametrize("foreach", [False, True])
def test_each_group_has_its_own(foreach: bool) -> None:
    def make(params: Any) -> Any:
        first, second = params
        return optim.AdamW([{"params": [first], "lr": 0.1}, {"params": [second], "lr": 0.1}], foreach=foreach)

    traced, eager = Training(make), Training(make)
    x = torch.randn(5, 4)
    traced.step(x), eager.step(x)
    tape = torchreel.trace(traced.step, x)
    eager.step(x)
    for step in range(4):
        for one in (traced, eager):
            one.optimizer.param_groups[0]["lr"] = 0.1 + step
            one.optimizer.param_groups[1]["lr"] = 0.001 * step
        x = torch.randn(5, 4)
        assert torch.equal(tape.replay(x), eager.step(x)) and same(traced, eager)


def test_it_may_be_equal_to_another_setting() -> None:
    """In the fused kernel the rate, the momentum and the decay are numbers side by side."""
    make = KINDS["SGD with momentum"]
    traced, eager = Training(make, fused=True), Training(make, fused=True)
    for one in (traced, eager):
        one.optimizer.param_groups[0].update(momentum=RATE, dampening=0, nesterov=False)
    x = torch.randn(5, 4)
    traced.step(x), eager.step(x)
    tape = torchreel.trace(traced.step, x)
    eager.step(x)
    for one in (traced, eager):
        one.optimizer.param_groups[0]["lr"] = 0.5
    assert torch.equal(tape.replay(x), eager.step(x)) and same(traced, eager)


@pytest.mark.parametrize("value", [0.0, -0.0, float("inf"), float("nan"), 1e-320])
def test_any_number(value: float) -> None:
    traced, eager = Training(KINDS["Adam"]), Training(KINDS["Adam"])
    x = torch.randn(5, 4)
    traced.step(x), eager.step(x)
    tape = torchreel.trace(traced.step, x)
    eager.step(x)
    for one in (traced, eager):
        one.optimizer.param_groups[0]["lr"] = value
    tape.replay(x), eager.step(x)
    for found, expected in zip(traced.state(), eager.state(), strict=True):
        assert found.numpy().tobytes() == expected.numpy().tobytes() if not found.requires_grad else True
        assert torch.equal(found.isnan(), expected.isnan())


@pytest.mark.parametrize("value", [torch.tensor(0.1), 1, "0.1", None])
def test_what_is_no_float_is_refused(value: Any) -> None:
    traced = Training(KINDS["SGD"])
    x = torch.randn(5, 4)
    tape = torchreel.trace(traced.step, x)
    before = copy.deepcopy(traced.model.state_dict())
    traced.optimizer.param_groups[0]["lr"] = value
    with pytest.raises(GuardError, match="The optimizer's lr"):
        tape.replay(x)
    assert all(torch.equal(before[name], now) for name, now in traced.model.state_dict().items())


@pytest.mark.parametrize(("kind", "name", "value"), [("Adam", "betas", (0.5, 0.9)), ("SGD", "weight_decay", 0.5)])
def test_other_settings_are_still_guarded(kind: str, name: str, value: Any) -> None:
    traced = Training(KINDS[kind])
    x = torch.randn(5, 4)
    tape = torchreel.trace(traced.step, x)
    traced.optimizer.param_groups[0][name] = value
    with pytest.raises(GuardError, match=f"The optimizer's {name} was"):
        tape.replay(x)


def test_a_rate_that_went_where_nobody_follows_it_is_refused() -> None:
    """A hook of the optimizer's own may read it in any way: that is guarded, and a change is an error."""
    traced = Training(lambda params: optim.Rprop(params, RATE))
    x = torch.randn(5, 4)
    traced.step(x)
    tape = torchreel.trace(traced.step, x)
    traced.optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(GuardError, match=r"The optimizer's lr was 0\.01"):
        tape.replay(x)


def _reads_before(training: Training, x: Tensor) -> Tensor:
    rate = training.optimizer.param_groups[0]["lr"]
    return training.step(x) * rate


def _reads_after(training: Training, x: Tensor) -> Tensor:
    return training.step(x) * training.optimizer.param_groups[0]["lr"]


def _reads_in_a_closure(training: Training, x: Tensor) -> Tensor:
    def closure() -> Tensor:
        training.optimizer.zero_grad()
        loss = training.model(x).square().sum() * training.optimizer.param_groups[0]["lr"]
        loss.backward()
        return loss

    return training.optimizer.step(closure).detach()


def _reads_between(training: Training, x: Tensor) -> Tensor:
    first = training.step(x) * training.optimizer.param_groups[0]["lr"]
    return training.step(x) + first


@pytest.mark.parametrize("step", [_reads_before, _reads_after, _reads_in_a_closure, _reads_between])
def test_a_function_that_reads_it_itself_is_stopped(step: Callable[[Training, Tensor], Tensor]) -> None:
    training = Training(KINDS["SGD"])

    def called(x: Tensor) -> Tensor:
        return step(training, x)

    x = torch.randn(5, 4)
    tape = torchreel.trace(called, x)
    tape.replay(x)
    training.optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(GuardError, match="lr"):
        tape.replay(x)


@pytest.mark.parametrize("where", ["pre", "post"])
def test_a_hook_that_reads_it_is_seen(where: str) -> None:
    training = Training(KINDS["SGD"])

    def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
        with torch.no_grad():
            training.model.bias.mul_(1 - optimizer.param_groups[0]["lr"])

    getattr(training.optimizer, f"register_step_{where}_hook")(hook)
    x = torch.randn(5, 4)
    tape = torchreel.trace(training.step, x)
    tape.replay(x)
    training.optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(GuardError, match="lr"):
        tape.replay(x)


def test_an_optimizer_of_ones_own_is_guarded() -> None:
    class Slowed(optim.SGD):
        def step(self, closure: Any = None) -> Any:
            self.param_groups[0]["params"][0].grad.mul_(self.param_groups[0]["lr"])
            return super().step(closure)

    training = Training(lambda params: Slowed(params, RATE))
    x = torch.randn(5, 4)
    tape = torchreel.trace(training.step, x)
    tape.replay(x)
    training.optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(GuardError, match="lr"):
        tape.replay(x)


def test_asgd_in_its_first_step_makes_state_of_it() -> None:
    traced = Training(KINDS["ASGD"])
    x = torch.randn(5, 4)
    tape = torchreel.trace(traced.step, x)
    traced.optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(torchreel.errors.ReplayError):
        tape.replay(x)


def test_a_saved_tape_has_the_rate_of_now(tmp_path: Any) -> None:
    traced, eager = Training(KINDS["SGD"]), Training(KINDS["SGD"])
    x = torch.randn(5, 4)
    tape = torchreel.trace(traced.step, x)
    eager.step(x)
    for one in (traced, eager):
        one.optimizer.param_groups[0]["lr"] = 0.25
    tape.save(tmp_path / "step.tape")
    loaded = torchreel.load_tape(tmp_path / "step.tape")
    rates = [slot for slot in loaded.program.slots if slot.name == "SGD.lr.0"]
    assert len(rates) == 1 and rates[0].role == "optimizer"
    assert torch.equal(loaded.replay(x), eager.step(x))
    now = [tensor for slot, tensor in loaded.tensors.items() if loaded.program.slots[slot].role == "parameter"]
    assert sorted(str(one.detach()) for one in now) == sorted(str(one.detach()) for one in eager.model.parameters())


def test_without_mutation() -> None:
    traced, eager = Training(KINDS["AdamW"]), Training(KINDS["AdamW"])
    x = torch.randn(5, 4)
    traced.step(x), eager.step(x)
    tape = torchreel.trace(traced.step, x, outplace=True)
    eager.step(x)
    for one in (traced, eager):
        one.optimizer.param_groups[0]["lr"] = 0.5
    assert torch.equal(tape.replay(x), eager.step(x)) and same(traced, eager)


def test_a_block_may_read_it_anywhere() -> None:
    """A block is not followed: a change is an error, as that of any setting."""
    training = Training(KINDS["Adam"])
    x = torch.randn(5, 4)
    training.step(x)
    with torchreel.tracing(x) as tape:
        training.step(x).mul(training.optimizer.param_groups[0]["lr"])
    tape.replay(x)
    training.optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(GuardError, match=r"The optimizer's lr was 0\.01"):
        tape.replay(x)


@pytest.mark.filterwarnings("ignore:Nobody can tell")
@pytest.mark.parametrize("reads", [False, True])
def test_where_the_following_ends_a_change_is_an_error_or_taken(
    reads: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    traced, eager = Training(KINDS["SGD"]), Training(KINDS["SGD"])

    def step(training: Training, x: Tensor) -> Tensor:
        print("what no rule knows")
        loss = training.step(x)
        return loss * training.optimizer.param_groups[0]["lr"] if reads else loss

    def called(x: Tensor) -> Tensor:
        return step(traced, x)

    x = torch.randn(5, 4)
    tape = torchreel.trace(called, x)
    step(eager, x)
    for one in (traced, eager):
        one.optimizer.param_groups[0]["lr"] = 0.5
    try:
        found = tape.replay(x)
    except GuardError as error:
        assert "lr" in str(error)
    else:
        assert torch.equal(found, step(eager, x)) and same(traced, eager)


def test_one_who_vouches_gets_the_rate_of_now() -> None:
    traced, eager = Training(KINDS["SGD"]), Training(KINDS["SGD"])
    x = torch.randn(5, 4)
    tape = torchreel.trace(traced.step, x, trust=True)
    eager.step(x)
    for one in (traced, eager):
        one.optimizer.param_groups[0]["lr"] = 0.5
    assert torch.equal(tape.replay(x), eager.step(x)) and same(traced, eager)
