"""What the tensors of a tape are called, and where its ops come from."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.nn import functional

import torchreel
from tests.tape.training import make_run
from torchreel.program.model import Op, Program
from torchreel.program.query.source_frames import source_line


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(self.norm(x))
        return x.relu()


def roles(tape: torchreel.Tape) -> dict[str, str]:
    return {slot.name: slot.role for slot in tape.program.slots if slot.role not in ("made", "constant")}


def step_of_block() -> tuple[torchreel.Tape, Any]:
    torch.manual_seed(0)
    model = Block()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: torch.Tensor, *, target: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    step(torch.randn(3, 4), target=torch.randn(3, 2))
    return torchreel.trace(step, torch.randn(3, 4), target=torch.randn(3, 2)), step


def test_a_training_step() -> None:
    tape, _ = step_of_block()
    parameters = [
        *(f"model.norm.{name}" for name in ("weight", "bias")),
        *(f"model.layers.{place}.{name}" for place in (0, 1) for name in ("weight", "bias")),
    ]
    found = roles(tape)
    assert [name for name, role in found.items() if role == "input"] == ["x", "target"]
    assert {name for name, role in found.items() if role == "parameter"} == set(parameters)
    assert {name for name, role in found.items() if role == "buffer"} == {
        f"model.norm.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    assert {name for name, role in found.items() if role == "optimizer"} - {"AdamW.lr.0"} == {
        f"optimizer.{parameter}.{name}" for parameter in parameters for name in ("step", "exp_avg", "exp_avg_sq")
    }
    assert not [name for name, role in found.items() if role == "captured"]


def test_state_is_the_very_tensors() -> None:
    run = make_run(optimizer_of=torch.optim.SGD, settings={"lr": 0.1, "momentum": 0.9})
    run.step(*run.batches[0])
    tape = torchreel.trace(run.step, *run.batches[1])
    weight = run.model.get_parameter("0.weight")
    assert tape.state["model.0.weight"] is weight
    assert tape.state["optimizer.model.0.weight.momentum_buffer"] is run.optimizer.state[weight]["momentum_buffer"]


def test_gradients_that_are_added_to() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    tape = torchreel.trace(lambda x: (weight * x).sum().backward(), torch.ones(2))
    assert roles(tape)["weight.grad"] == "gradient"
    tape.replay(torch.ones(2))
    assert weight.grad.tolist() == [3.0, 3.0]


GLOBAL = torch.ones(2)


def test_where_names_come_from() -> None:
    closed, table, default = torch.ones(2), {"a": [torch.ones(2)]}, torch.ones(2)

    class Holder:
        def __init__(self) -> None:
            self.kept = torch.ones(2)

        def call(self, x: torch.Tensor, extra: torch.Tensor = default) -> torch.Tensor:
            return x + self.kept + closed + table["a"][0] + GLOBAL + extra

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.kept

    holder = Holder()
    assert set(torchreel.trace(holder.call, torch.ones(2)).state) == {
        *("self.kept", "closed", "table.a.0", "GLOBAL", "extra")
    }
    assert set(torchreel.trace(holder, torch.ones(2)).state) == {"self.kept"}
    assert set(torchreel.trace(lambda x: holder.call(x), torch.ones(2)).state) >= {"holder.kept"}
    given = torch.ones(2)
    assert list(torchreel.trace(functools.partial(torch.add, given), torch.ones(2)).state) == ["argument 0"]


def test_names_of_a_block() -> None:
    model, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    with torchreel.tracing(x) as tape:
        model(x)
    assert {slot.name: slot.role for slot in tape.program.slots if slot.role != "made"} == {
        "input_0": "input",
        "model.weight": "parameter",
        "model.bias": "parameter",
    }


def test_names_are_told_apart() -> None:
    """Two tensors never have one name, and one tensor has the shorter of two."""
    shared = torch.nn.Linear(2, 2)
    model = torch.nn.ModuleDict({"a": shared, "b": shared})
    tape = torchreel.trace(lambda x: model["a"](model["b"](x)), torch.ones(1, 2))
    assert set(tape.state) == {"model.a.weight", "model.a.bias"}
    every = [slot.name for slot in tape.program.slots if slot.role != "made"]
    assert len(every) == len(set(every))


def test_tensors_made_of_numbers_are_constants() -> None:
    kept = torch.ones(2)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.0, 2.0]) + torch.from_numpy(numpy.ones(2)) + kept * 0.5

    program = torchreel.trace(function, torch.ones(2)).program
    constants = [slot for slot in program.slots if slot.role == "constant"]
    assert [(slot.dtype, slot.sizes, slot.is_number) for slot in constants] == [
        ("float32", (2,), False),
        ("float64", (2,), False),
        ("float64", (), True),
    ]
    assert len(program.constants) == 2
    assert [slot.name for slot in program.slots if slot.role == "captured"] == ["kept"]


def op(program: Program, name: str) -> Op:
    return next(each for each in program.ops if each.name == name)


def test_ops_know_their_line_and_module() -> None:
    tape, step = step_of_block()
    program = tape.program
    relu = op(program, "aten::relu")
    assert source_line(program, relu).endswith("in Block.forward: return x.relu()")
    assert program.modules[relu.module].path == "model" and program.modules[relu.module].type == "Block"
    linear = [program.modules[each.module].path for each in program.ops if each.name == "aten::addmm"]
    assert linear == ["model.layers.0", "model.layers.1"]
    first = inspect.getsourcelines(step)[1]
    lines = {int(source_line(program, each).split(":")[1].split()[0]) for each in program.ops if each.module < 0}
    assert all(first <= line <= first + 6 for line in lines)
    assert len(lines) >= 3  # the loss, its gradient, the optimizer


def test_backward_knows_its_forward() -> None:
    tape, _ = step_of_block()
    program = tape.program
    pairs = {(each.name, program.ops[each.forward].name) for each in program.ops if each.backward and each.forward >= 0}
    assert ("aten::threshold_backward", "aten::relu") in pairs
    assert ("aten::mse_loss_backward", "aten::mse_loss") in pairs
    assert ("aten::native_batch_norm_backward", "aten::native_batch_norm") in pairs
    assert ("aten::mm", "aten::addmm") in pairs
    for each in program.ops:
        if each.backward and each.forward >= 0:
            assert not program.ops[each.forward].backward
            assert each.module == program.ops[each.forward].module
    without = [each.name for each in program.ops if each.backward and each.forward < 0]
    assert len(without) <= len([each for each in program.ops if each.backward]) // 2, without


def test_inputs_and_outputs_are_described() -> None:
    tape = torchreel.trace(lambda x, *, y: {"sum": x + y, "n": 3, "both": (x, None)}, torch.ones(2), y=torch.ones(2))
    assert [each.name for each in tape.inputs] == ["x", "y"]
    assert tape.outputs.kind == "dict" and tape.outputs.keys == ["sum", "n", "both"]
    assert tape.outputs.parts[1].leaf == 3 and tape.outputs.parts[2].kind == "tuple"


def test_inputs_are_named_as_parameters() -> None:
    def function(inputs, state, *rest, aten, **more):  # type: ignore[no-untyped-def]
        return inputs + state["a"][1] + rest[0] + rest[1] + aten + more["last"]

    given = [torch.full((2,), float(number)) for number in range(6)]
    tape = torchreel.trace(
        function, given[0], {"a": (None, given[1])}, given[2], given[3], aten=given[4], last=given[5]
    )
    names = [each.name for each in tape.inputs]
    assert names == ["inputs", "state_a_1", "rest_0", "rest_1", "aten", "last"]
    space: dict[str, object] = {}
    exec(compile(tape.python(), "tape.py", "exec"), space)
    assert space["run"](given, {}).tolist() == [15.0, 15.0]  # type: ignore[operator]


def test_names_of_inputs_that_would_be_two_are_told_apart() -> None:
    tape = torchreel.trace(lambda x, x_0: x[0] + x_0, [torch.ones(1)], torch.ones(1))
    names = [each.name for each in tape.inputs]
    assert names == ["x_0", "input_1"]
    assert [each.name for each in torchreel.trace(torch.sin, torch.ones(1)).inputs] == ["input_0"]


def test_inputs_of_modules_methods_and_partials() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden * 2

        def other(self, wide: torch.Tensor) -> torch.Tensor:
            return wide * 3

    def both(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first + second

    model, one = Scaled(), torch.ones(2)
    assert [each.name for each in torchreel.trace(model, one).inputs] == ["hidden"]
    assert [each.name for each in torchreel.trace(model.other, one).inputs] == ["wide"]
    assert [each.name for each in torchreel.trace(functools.partial(both, torch.ones(2)), one).inputs] == ["second"]


def test_a_file_keeps_the_names_and_takes_old_ones(tmp_path: Path) -> None:
    tape = torchreel.trace(lambda x, scale: x * scale, torch.ones(2), torch.full((2,), 3.0))
    tape.save(tmp_path / "new.tape")
    new = torchreel.load_tape(tmp_path / "new.tape")
    assert [each.name for each in new.inputs] == ["x", "scale"]
    for place, each in enumerate(tape.inputs):  # as earlier versions named them
        each.name = tape.program.slots[each.slot].name = f"input_{place}"
    tape.save(tmp_path / "old.tape")
    old = torchreel.load_tape(tmp_path / "old.tape")
    assert [each.name for each in old.inputs] == ["input_0", "input_1"]
    for loaded in (new, old):
        assert loaded.replay(torch.ones(2), torch.full((2,), 4.0)).tolist() == [4.0, 4.0]
