"""tape.fx(): graphs of real programs, run in place of them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.tape.transform.views import CASES, Case, before, mlp_and_sgd, numbers_that_leave, outcome, put_back, traced
from torchreel.errors import GuardError, TapeError
from torchreel.tape import load_tape
from torchreel.tape.transform.attribute_names import AttributeNames


@pytest.mark.parametrize("make", CASES)
def test_running_the_graph_does_what_the_function_does(make: Callable[[], Case]) -> None:
    torch.manual_seed(1)
    case = make()
    start = before(case)
    tape, expected = traced(case, start)
    module = tape.fx()
    module.graph.lint()
    for _ in range(2):
        inputs = put_back(case, start)
        assert outcome(case, module(*inputs)) == expected


def test_dead_code_is_dead_and_the_rest_stays() -> None:
    """A pass of torch.fx that looks for results which nobody uses leaves what writes, draws or compares."""
    torch.manual_seed(1)
    case = mlp_and_sgd()
    start = before(case)
    tape, expected = traced(case, start)
    module = tape.fx()
    module.graph.eliminate_dead_code()
    module.recompile()
    assert outcome(case, module(*put_back(case, start))) == expected


def test_an_interpreter_runs_it_too() -> None:
    torch.manual_seed(1)
    case = mlp_and_sgd()
    start = before(case)
    tape, expected = traced(case, start)
    with torch.no_grad():
        assert outcome(case, torch.fx.Interpreter(tape.fx()).run(*put_back(case, start))) == expected


def test_the_state_has_its_names_and_is_the_tapes_own() -> None:
    case = mlp_and_sgd()
    start = before(case)
    tape, _ = traced(case, start)
    module = tape.fx()
    parameters = dict(module.named_parameters())
    assert set(parameters) == {"model.0.weight", "model.0.bias", "model.3.weight", "model.3.bias"}
    assert parameters["model.0.weight"] is tape.state["model.0.weight"]
    assert [node.target for node in module.graph.nodes if node.op == "placeholder"] == ["x", "y"]


def test_nodes_say_where_they_come_from() -> None:
    case = mlp_and_sgd()
    tape, _ = traced(case, before(case))
    module = tape.fx()
    (node, *_) = [node for node in module.graph.nodes if node.target is torch.ops.aten.addmm.default]
    assert node.meta["module"] == "model.0" and not node.meta["backward"]
    assert node.meta["source"].endswith(": out = model(x)")
    assert node.meta["tensor_meta"].shape == (3, 8) and node.meta["tensor_meta"].dtype is torch.float32
    assert "out = model(x)" in module.print_readable(print_output=False)
    assert any(node.meta.get("backward") for node in module.graph.nodes)


def test_gradients_are_not_recorded() -> None:
    case = mlp_and_sgd()
    start = before(case)
    tape, _ = traced(case, start)
    inputs = put_back(case, start)
    assert torch.is_grad_enabled()
    assert tape.fx()(*inputs)["loss"].grad_fn is None
    assert torch.is_grad_enabled()


def test_a_guard_stops_it_and_leaves_autograd_as_it_was() -> None:
    case = numbers_that_leave()
    tape, _ = traced(case, before(case))
    with pytest.raises(GuardError, match=r"^views\.py:\d+ in .*the number that left for Python is 27\.0, and was 6\.0"):
        tape.fx()(torch.tensor([9.0, 9.0, 9.0]))
    assert torch.is_grad_enabled()


def test_it_can_be_copied_and_pickled() -> None:
    torch.manual_seed(1)
    case = mlp_and_sgd()
    start = before(case)
    tape, _ = traced(case, start)
    module = tape.fx()
    put_back(case, start)
    copied, kept = copy.deepcopy(module), pickle.loads(pickle.dumps(module))
    losses = {each(*put_back(case, start))["loss"].item() for each in (module, copied)}
    with torch.no_grad():
        losses.add(kept(*put_back(case, start))["loss"].item())
    assert len(losses) == 1


def test_names_that_a_module_cannot_have() -> None:
    names = AttributeNames()
    wishes = ["model.weight", "model.weight.grad", "model", "forward", "model.type", "a b.c", "", "model.weight", "0.1"]
    assert [names.unique(wish) for wish in wishes] == [
        "model.weight",
        "model.weight_grad",
        "model_1",
        "forward_",
        "model.type_",
        "a_b.c",
        "value",
        "model.weight_1",
        "0.1",
    ]


def test_a_tape_without_data_has_no_graph(tmp_path: Path) -> None:
    case = mlp_and_sgd()
    tape, _ = traced(case, before(case))
    tape.save(tmp_path / "step.tape", data=False)
    loaded = load_tape(tmp_path / "step.tape")
    assert "aten.addmm.default(" in loaded.python()
    with pytest.raises(TapeError, match=r"The tensor 'model\..*' of the tape is not here, because the tape was saved"):
        loaded.fx()
