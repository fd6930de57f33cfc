"""What a replay says when something has changed since the trace: the thing by its name, and what to do."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchreel
from tests.tape.outcome import bits
from tests.tape.training import Run, make_run
from torchreel.errors import GuardError, ReplayError

Changed = tuple[Callable[[Run], object], str]


def load_optimizer(run: Run) -> None:
    state = run.optimizer.state_dict()
    for part in state["state"].values():
        part["momentum_buffer"] = part["momentum_buffer"].clone()
    run.optimizer.load_state_dict(state)


def load_model(run: Run) -> None:
    run.model.load_state_dict({key: value.clone() for key, value in run.model.state_dict().items()}, assign=True)


def replace(run: Run) -> None:
    run.model[4].weight = torch.nn.Parameter(torch.ones(3, 8))  # type: ignore[index, operator]


CHANGED: dict[str, Changed] = {
    "the state of the optimizer": (load_optimizer, r"optimizer\.state\.0\.0\.momentum_buffer is another tensor now"),
    "an assigned state": (load_model, r"model\.\d\.\w+ is another tensor now.*trace again"),
    "a parameter": (replace, r"model\.4\.weight is another tensor now"),
    "a frozen parameter": (
        lambda run: run.model[0].weight.requires_grad_(False),  # type: ignore[index, operator, union-attr]
        r"model\.0\.weight required a gradient when the tape was made, and does not now",
    ),
    "a group": (
        lambda run: run.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]}),
        r"optimizer \(SGD\) has other parameters",
    ),
    "a hook of a module": (
        lambda run: run.model[0].register_forward_hook(lambda *_: None),  # type: ignore[index]
        r"Hooks of model\.0 .* have been added or removed",
    ),
    "a hook of a parameter": (
        lambda run: run.model[0].weight.register_hook(lambda gradient: gradient),  # type: ignore[index, operator, union-attr]
        r"A hook of model\.0\.weight has been added or removed",
    ),
    "a hook of the optimizer": (
        lambda run: run.optimizer.register_step_post_hook(lambda *_: None),
        r"Hooks of optimizer .* have been added or removed",
    ),
    "a setting of a layer": (
        lambda run: setattr(run.model[2], "p", 0.5),  # type: ignore[index]
        r"model\.2\.p was 0\.2 when the tape was made, and is 0\.5 now",
    ),
}


def traced() -> tuple[Run, torchreel.Tape]:
    run = make_run("mlp", torch.optim.SGD, {"lr": 0.05, "momentum": 0.9})
    run.step(*run.batches[0])
    return run, torchreel.trace(run.step, *run.batches[1])


@pytest.mark.parametrize("replays", [0, 1])
@pytest.mark.parametrize("kind", CHANGED)
def test_a_change_is_told_by_name_and_leaves_everything_as_it_was(kind: str, replays: int) -> None:
    run, tape = traced()
    for batch in run.batches[2 : 2 + replays]:
        tape.replay(*batch)
    change, message = CHANGED[kind]
    change(run)
    before = run.state()

    with pytest.raises(GuardError, match=message):
        tape.replay(*run.batches[5])

    assert run.state() == before


BLOCK_CHANGES = ["an assigned state", "a parameter", "a frozen parameter", "a group", "the state of the optimizer"]


@pytest.mark.parametrize("kind", BLOCK_CHANGES)
def test_a_block_looks_at_what_it_called(kind: str) -> None:
    run = make_run("mlp", torch.optim.SGD, {"lr": 0.05, "momentum": 0.9})
    run.step(*run.batches[0])
    x, y = run.batches[1]
    with torchreel.tracing(x, y) as tape:
        run.step(x, y)
    tape.replay(*run.batches[2])
    CHANGED[kind][0](run)
    with pytest.raises(GuardError):
        tape.replay(*run.batches[3])


def test_a_block_that_adds_to_gradients() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.zeros(3)
    x = torch.ones(3)
    with torchreel.tracing(x) as tape:
        (weight * x).sum().backward()
    weight.grad = torch.full((3,), 5.0)
    tape.replay(torch.full((3,), 2.0))
    assert weight.grad.tolist() == [7.0, 7.0, 7.0]
    weight.grad = None
    with pytest.raises(GuardError, match=r"had a gradient when the tape was made, and has none now"):
        tape.replay(x)


def test_a_count_is_told_with_its_numbers() -> None:
    calls = 0

    def function(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return x * calls

    tape = torchreel.trace(function, torch.ones(2))
    with pytest.raises(ReplayError, match=r"The function changed calls from 0 to 1, which a replay would not"):
        tape.replay(torch.ones(2))


def test_values_that_are_written_in_place_are_no_change() -> None:
    """New values in the same tensors are what a tape is for."""
    run, tape = traced()
    state = {key: value + 0.5 for key, value in run.model.state_dict().items()}
    run.model.load_state_dict(state)
    random = torch.get_rng_state()
    found = bits(tape.replay(*run.batches[2])), run.state()

    run, _ = traced()
    run.model.load_state_dict(state)
    torch.set_rng_state(random)
    assert found == (bits(run.step(*run.batches[2])), run.state())


def test_other_tensors_of_the_model_may_change() -> None:
    """What no op of the tape has is nobody's concern."""
    model: Any = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 2), "spare": torch.nn.Linear(2, 2)})

    def function(x: torch.Tensor) -> torch.Tensor:
        return model["used"](x)

    tape = torchreel.trace(function, torch.ones(2))
    model["spare"].weight = torch.nn.Parameter(torch.zeros(2, 2))
    assert torch.equal(tape.replay(torch.ones(2)), function(torch.ones(2)))


def test_the_same_plain_value_anew_is_no_change() -> None:
    settings = {"scale": 0.1 + 0.2, "sizes": (1, 2)}
    tape = torchreel.trace(lambda x: x * settings["scale"], torch.ones(2))
    settings["scale"] = sum([0.1, 0.2])
    settings["sizes"] = tuple([1, 2])  # noqa: C409
    assert torch.equal(tape.replay(torch.ones(2)), torch.ones(2) * (0.1 + 0.2))


def test_what_the_code_does_not_name_may_change() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.scale, self.epochs = 2.0, 0

        def step(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    trainer = Trainer()
    tape = torchreel.trace(trainer.step, torch.ones(2))
    trainer.epochs += 1
    assert tape.replay(torch.ones(2)).tolist() == [2.0, 2.0]
    trainer.scale = 3.0
    with pytest.raises(GuardError, match=r"self\.scale was 2\.0 when the tape was made, and is 3\.0 now"):
        tape.replay(torch.ones(2))


def test_a_tape_without_mutation_looks_too() -> None:
    model: Any = torch.nn.Linear(2, 2)
    tape = torchreel.trace(lambda x: model(x).detach(), torch.ones(2), outplace=True)
    expected = model(torch.zeros(2)).detach()
    assert torch.equal(tape.replay(torch.zeros(2)), expected)
    model.weight = torch.nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(GuardError, match=r"model\.weight is another tensor now"):
        tape.replay(torch.zeros(2))


def test_a_tape_does_not_keep_what_it_looks_at_in_a_circle() -> None:
    """It goes when nobody has it, and not when the collector comes."""
    import gc
    import weakref

    run, tape = traced()
    tape.replay(*run.batches[2])
    gone = weakref.ref(tape)
    gc.disable()
    try:
        del tape
        assert gone() is None
    finally:
        gc.enable()


def test_a_module_that_no_name_leads_to() -> None:
    """A pointer does not say what it leads to."""
    layer = torch.nn.Linear(2, 2)
    hidden = ctypes.py_object(layer)
    tape = torchreel.trace(lambda x: hidden.value(x).detach(), torch.ones(2))
    with pytest.warns(UserWarning, match=r"Nobody can tell .* reads ctypes.py_object.value"):
        tape.replay(torch.ones(2))
    layer.weight = torch.nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(GuardError, match=r"Linear\.weight is another tensor now"):
        tape.replay(torch.ones(2))


def test_an_input_with_a_tangent() -> None:
    """What it would give along with the result is not on the tape."""
    tape = torchreel.trace(lambda x: x * x, torch.ones(2))
    with torch.autograd.forward_ad.dual_level():
        assert tape.replay(torch.full((2,), 3.0)).tolist() == [9.0, 9.0]
        dual = torch.autograd.forward_ad.make_dual(torch.ones(2), torch.ones(2))
        with pytest.raises(GuardError, match=r"Input x has a tangent of forward-mode AD"):
            tape.replay(dual)


def test_an_input_of_other_strides_that_gets_a_gradient() -> None:
    """A copy of it would get the gradient instead."""
    tape = torchreel.trace(lambda x: x.pow(2).sum().backward(), torch.ones(2, 3, requires_grad=True))
    x = torch.ones(3, 2).t().requires_grad_()
    with pytest.raises(ReplayError, match=r"had strides \(3, 1\)"):
        tape.replay(x)
    x = torch.ones(2, 3, requires_grad=True)
    tape.replay(x)
    assert x.grad is not None and x.grad.tolist() == [[2.0] * 3] * 2


def test_an_object_that_does_not_let_itself_be_looked_at() -> None:
    class Shy:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("not now")

    shy = Shy()
    tape = torchreel.trace(lambda x: x + (1 if shy is not None else 2), torch.ones(2))
    assert tape.replay(torch.zeros(2)).tolist() == [1.0, 1.0]
