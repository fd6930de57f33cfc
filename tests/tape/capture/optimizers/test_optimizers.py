"""Optimizers that compute with their step counts in Python go on past the traced step, bit for bit."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import _functional, radam

import torchreel
from tests.tape.outcome import bits
from tests.tape.test_training import named
from tests.tape.training import Run, make_run
from torchreel.errors import GuardError

STEPS = 20
DECAY = {"weight_decay": 0.1}
COUNTING: list[tuple[Any, dict[str, Any]]] = [
    (optimizer, settings)
    for optimizer, more in {
        torch.optim.RAdam: [DECAY | {"decoupled_weight_decay": True}, {"maximize": True}, {"betas": (0.8, 0.95)}],
        torch.optim.NAdam: [DECAY, DECAY | {"decoupled_weight_decay": True}, {"momentum_decay": 0.05}],
        torch.optim.Adagrad: [DECAY, {"lr_decay": 0.1}, {"lr_decay": 0.1, "foreach": True}, {"fused": True}],
        torch.optim.Adamax: [DECAY | {"maximize": True}, {"betas": (0.8, 0.95), "foreach": True}],
        torch.optim.ASGD: [DECAY, {"t0": 2.0}, {"t0": 2.0, "foreach": True}, {"lambd": 0.1, "alpha": 0.5}],
        torch.optim.Rprop: [{"etas": (0.4, 1.3)}],
        torch.optim.Adadelta: [DECAY],
        torch.optim.RMSprop: [{"centered": True, "momentum": 0.9}],
        torch.optim.SGD: [{"momentum": 0.9, "dampening": 0.1}, DECAY | {"maximize": True}],
    }.items()
    for settings in [{}, {"foreach": True}, {"foreach": False}, *more]
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run_of(optimizer: Any, settings: dict[str, Any]) -> Run:
    return make_run("mlp", optimizer, {"lr": 0.01, **settings}, steps=STEPS + 9)


def traced_after(run: Run, steps: int) -> torchreel.Tape:
    for batch in run.batches[: steps - 1]:
        run.step(*batch)
    return torchreel.trace(run.step, *run.batches[steps - 1])


@pytest.mark.parametrize(("optimizer", "settings"), COUNTING, ids=named)
def test_twenty_steps_past_the_traced_one(optimizer: Any, settings: dict[str, Any]) -> None:
    # GIVEN a run, and its losses and state after it
    run = run_of(optimizer, settings)
    losses = [bits(run.step(*batch)) for batch in run.batches]
    expected = run.state()

    # WHEN the ninth step is traced: before that RAdam has another way to go
    run = run_of(optimizer, settings)
    tape = traced_after(run, 9)

    # THEN twenty replays are the twenty steps that follow
    assert [bits(tape.replay(*batch)) for batch in run.batches[9:]] == losses[9:]
    assert run.state() == expected


@pytest.mark.parametrize("foreach", [False, True])
def test_where_radam_goes_another_way(foreach: bool) -> None:
    """Its sixth step is the first that it rectifies, which is another program."""
    run = run_of(torch.optim.RAdam, {"foreach": foreach})
    losses = [bits(run.step(*batch)) for batch in run.batches[:5]]

    run = run_of(torch.optim.RAdam, {"foreach": foreach})
    tape = traced_after(run, 2)

    assert [bits(tape.replay(*batch)) for batch in run.batches[2:5]] == losses[2:]
    with pytest.raises(GuardError, match=r"optimizer\.step\(\)\) gave True where False was recorded"):
        tape.replay(*run.batches[5])


def test_where_asgd_begins_to_average() -> None:
    run = run_of(torch.optim.ASGD, {"t0": 4.0})
    tape = traced_after(run, 2)
    for batch in run.batches[2:5]:
        tape.replay(*batch)
    with pytest.raises(GuardError, match=r"gave True where False was recorded"):
        tape.replay(*run.batches[5])


@pytest.mark.parametrize("optimizer", [torch.optim.RAdam, torch.optim.NAdam, torch.optim.ASGD])
def test_a_loaded_tape_counts_on(optimizer: Any, tmp_path: Path) -> None:
    run = run_of(optimizer, {})
    tape = traced_after(run, 9)
    tape.save(tmp_path / "step.tape")
    loaded = torchreel.load_tape(tmp_path / "step.tape")
    for batch in run.batches[9:15]:
        state = torch.get_rng_state()
        loss = bits(tape.replay(*batch))
        torch.set_rng_state(state)
        assert bits(loaded.replay(*batch)) == loss


@pytest.mark.parametrize(
    "optimizer", [torch.optim.RAdam, torch.optim.NAdam, torch.optim.Adamax, torch.optim.SparseAdam]
)
def test_the_text_of_a_tape_counts_on(optimizer: Any, tmp_path: Path) -> None:
    def make() -> Run:
        return sparse_run() if optimizer is torch.optim.SparseAdam else run_of(optimizer, {})

    other = make()
    for batch in other.batches[:12]:
        loss = bits(other.step(*batch))
    expected = [value for name, value in other.state().items() if name.startswith("model")]

    run = make()
    tape = traced_after(run, 9)
    module = imported(tape.python(), tmp_path)
    state = tape.state
    for batch in run.batches[9:12]:
        found = bits(module.run(list(batch), state))
    assert found == loss
    assert [value for name, value in run.state().items() if name.startswith("model")] == expected


def imported(text: str, folder: Path) -> Any:
    (folder / "step.py").write_text(text)
    found = importlib.util.spec_from_file_location("step", folder / "step.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def sparse_run(settings: dict[str, Any] | None = None) -> Run:
    torch.manual_seed(0)
    model = torch.nn.ModuleList([torch.nn.Embedding(10, 4, sparse=True), torch.nn.Embedding(5, 4, sparse=True)])
    optimizer = torch.optim.SparseAdam(model.parameters(), **(settings or {"lr": 0.01}))

    def step(places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        first, second = model
        loss = (first(places).sum(1) * second(places % 5).sum(1) * weights).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    batches = [(torch.randint(10, (3, 2)), torch.randn(3, 4)) for _ in range(STEPS + 9)]
    return Run(model, optimizer, step, batches)


@pytest.mark.parametrize("settings", [{"lr": 0.01}, {"lr": 0.1, "betas": (0.8, 0.95), "maximize": True}], ids=named)
def test_sparse_adam_counts_in_python(settings: dict[str, Any]) -> None:
    run = sparse_run(settings)
    losses = [bits(run.step(*batch)) for batch in run.batches]
    expected = run.state()

    run = sparse_run(settings)
    tape = traced_after(run, 2)

    assert [bits(tape.replay(*batch)) for batch in run.batches[2:]] == losses[2:]
    assert run.state() == expected
    assert {state["step"] for state in run.optimizer.state.values()} == {STEPS + 9}


def test_sparse_adam_between_replays() -> None:
    """A step of the optimizer itself counts for the tape, and the other way round."""
    run = sparse_run()
    losses = [bits(run.step(*batch)) for batch in run.batches[:6]]
    expected = run.state()
    run = sparse_run()
    tape = traced_after(run, 2)
    assert bits(tape.replay(*run.batches[2])) == losses[2]
    assert bits(run.step(*run.batches[3])) == losses[3]
    assert bits(tape.replay(*run.batches[4])) == losses[4]
    assert bits(run.step(*run.batches[5])) == losses[5]
    assert run.state() == expected


def test_an_optimizer_is_itself_again_after_a_trace() -> None:
    before = radam.radam, _functional.sparse_adam, _functional.math
    traced_after(run_of(torch.optim.RAdam, {}), 2)
    traced_after(sparse_run(), 2)
    assert (radam.radam, _functional.sparse_adam, _functional.math) == before


def test_an_optimizer_is_itself_again_after_an_error() -> None:
    before = radam.radam
    run = run_of(torch.optim.RAdam, {})

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        run.step(x, y)
        raise KeyError("on purpose")

    with pytest.raises(KeyError, match="on purpose"):
        torchreel.trace(step, *run.batches[0])
    assert radam.radam is before
