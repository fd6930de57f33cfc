"""tape.python(): the text of real programs, run in place of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tape.transform.views import CASES, Case, before, mlp_and_sgd, numbers_that_leave, outcome, put_back, traced
from torchreel.tape.capture.trace import trace


def runner(text: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(compile(text, "tape.py", "exec"), scope)
    return scope["run"]


@pytest.mark.parametrize("make", CASES)
def test_running_the_text_does_what_the_function_does(make: Callable[[], Case]) -> None:
    torch.manual_seed(1)
    case = make()
    start = before(case)
    tape, expected = traced(case, start)
    run = runner(tape.python())
    for _ in range(2):
        inputs = put_back(case, start)
        assert outcome(case, run(inputs, tape.state)) == expected


def test_steps_go_on_as_the_function_would() -> None:
    torch.manual_seed(1)
    case = mlp_and_sgd()
    start = before(case)
    tape, _ = traced(case, start)
    inputs = put_back(case, start)
    eager = [case.function(*inputs)["loss"].item() for _ in range(5)]
    run = runner(tape.python())
    inputs = put_back(case, start)
    assert [run(inputs, tape.state)["loss"].item() for _ in range(5)] == eager


def test_the_text_runs_alone(tmp_path: Path) -> None:
    """In a process that has neither the model nor torchreel."""
    torch.manual_seed(1)
    case = mlp_and_sgd()
    start = before(case)
    tape, _ = traced(case, start)
    inputs = put_back(case, start)
    (tmp_path / "step.py").write_text(tape.python())
    state = {name: tensor.detach() for name, tensor in tape.state.items()}
    torch.save({"inputs": inputs, "state": state, "random": start.random}, tmp_path / "data.pt")
    program = (
        "import sys, torch, step\n"
        "data = torch.load('data.pt')\n"
        "torch.set_rng_state(data['random'])\n"
        "print(step.run(data['inputs'], data['state'])['loss'].item().hex())\n"
        "assert 'torchreel' not in sys.modules\n"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert found.stderr == ""
    assert found.stdout.strip() == case.function(*put_back(case, start))["loss"].item().hex()


def test_source_lines_modules_and_names() -> None:
    case = mlp_and_sgd()
    start = before(case)
    text = traced(case, start)[0].python()
    lines = text.splitlines()
    for wanted in (
        "in training.<locals>.step: out = model(x)  [model.0 Linear]",
        "in training.<locals>.step: loss.backward()  [gradient of views.py:",
        "in training.<locals>.step: optimizer.step()",
    ):
        assert any(line.strip().startswith("# views.py:") and wanted in line for line in lines), wanted
    assert 'model_0_weight = state["model.0.weight"]' in text
    assert lines[0].startswith("# training.<locals>.step (")
    assert "#   model.0.weight" in text and "float32 [8, 4]  parameter" in text


def test_a_guard_names_the_line() -> None:
    case = numbers_that_leave()
    start = before(case)
    tape, _ = traced(case, start)
    with pytest.raises(RuntimeError, match=r"^views\.py:\d+ in .*: total = x\.abs\(\)\.sum\(\)\.item\(\): the n"):
        runner(tape.python())([torch.tensor([9.0, 9.0, 9.0])], tape.state)


def test_values_that_numpy_saw() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * float((x + 1).numpy().sum())

    x = torch.arange(7, dtype=torch.float64)
    tape = trace(function, x)
    run = runner(tape.python())
    assert torch.equal(run([x.clone()], tape.state), function(x))
    with pytest.raises(RuntimeError, match=r"x \* float.*: the values that left for Python are not those"):
        run([x + 1], tape.state)
