"""Operators: what is known of those that ran and of those that files register."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import torchreel
from tests.atlas.test_operator_costs import Differentiated, costs
from tests.atlas.test_operator_schemas import cache, read  # noqa: F401 (fixtures)
from tests.synthetic import call, write_reel
from torchreel.atlas import operators as module
from torchreel.atlas.kernel_costs import kernel_costs
from torchreel.atlas.model import Costs, Registration
from torchreel.atlas.operator_costs import Ran, operator_costs
from torchreel.atlas.operator_schemas import Derivative, Read
from torchreel.atlas.operators import derivative_text, operators
from torchreel.atlas.tables import TABLES

pytestmark = pytest.mark.usefixtures("read")  # so that torchgen reads once

IMPL = Registration(31, "TORCH_IMPL_FUNC", "mm_out_cpu")
NORM = Registration(7, "m.def", "mylib::norm")
OTHERS = [
    Registration(1, "TORCH_LIBRARY", "mylib"),
    Registration(2, "DEFINE_DISPATCH", "add_stub"),
    Registration(3, "TORCH_IMPL_FUNC", "not_a_kernel"),
    Registration(4, "m.def", "<b>::</b>"),
]


@pytest.fixture
def ran(tmp_path: Path) -> dict[str, Ran]:
    calls = [
        call("aten::mm", 30, flops=24, bytes=8),
        call("aten::add_", 5, overload="Tensor"),
        call("aten::native_layer_norm", 7),
        call("mylib::norm", 9),
        call("aten::no_such_op", 1),
    ]
    return operator_costs(torchreel.load(write_reel(tmp_path / "run.reel", Differentiated({"main": calls}))))


def test_the_table(ran: dict[str, Ran]) -> None:
    found = operators(ran, [(4, IMPL), (5, NORM), *((6, each) for each in OTHERS)], {"layer_norm_cpu": (8, 90)})
    table = found.table()
    assert table.schema.equals(TABLES["operators"].schema)
    assert found.problem == ""
    rows = {(row.pop("name"), row.pop("overload")): row for row in table.to_pylist()}
    unknown = {"schema": None, "derivative": None, "kernel": None, "kernel_file": None, "kernel_line": None}

    def spent(each: Costs) -> dict[str, int | None]:
        return {name: getattr(each, name) for name in Costs.__struct_fields__}

    norm = rows.pop(("aten::native_layer_norm", ""))
    assert norm["schema"].startswith("aten::native_layer_norm(Tensor input, SymInt[] normalized_shape")
    assert norm["derivative"].startswith("input, weight, bias: grad.defined() ? native_layer_norm_backward")
    assert rows == {
        ("aten::add_", "Tensor"): {
            "schema": "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
            "derivative": "other: handle_r_to_c(other.scalar_type(), maybe_multiply(grad, alpha.conj()))\n"
            "self: handle_r_to_c(self.scalar_type(), grad)",
            "kernel": "ufunc_add_CPU",
            "kernel_file": None,
            "kernel_line": None,
            **spent(costs(1, 5, 0, 5)),
        },
        ("aten::mm", ""): {
            "schema": "aten::mm(Tensor self, Tensor mat2) -> Tensor",
            "derivative": "mat2: mm_mat2_backward(grad, self, mat2.sym_sizes(), mat2.sym_strides(), mat2.layout(), 1)\n"
            "self: mm_mat1_backward(grad, mat2, self.sym_sizes(), self.sym_strides(), self.layout(), 1)",
            "kernel": "mm_out_cpu",
            "kernel_file": 4,
            "kernel_line": 31,
            **spent(costs(1, 30, 0, 30, 8, 24)),
        },
        ("aten::mm", "out"): {
            "schema": "aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)",
            "derivative": None,
            "kernel": "mm_out_cpu",
            "kernel_file": 4,
            "kernel_line": 31,
            **spent(Costs()),
        },
        ("aten::no_such_op", ""): {**unknown, **spent(costs(1, 1, 0, 1))},
        ("mylib::norm", ""): {**unknown, **spent(costs(1, 9, 0, 9))},
    }
    assert (norm["kernel"], norm["kernel_file"], norm["kernel_line"]) == ("layer_norm_cpu", 8, 90)
    assert found.kernels() == {
        ("aten::mm", ""): (4, 31),
        ("aten::mm", "out"): (4, 31),
        ("aten::native_layer_norm", ""): (8, 90),
    }


def test_what_registers_what(ran: dict[str, Ran]) -> None:
    found = operators(ran, [(4, IMPL), (5, NORM), *((6, each) for each in OTHERS)])
    assert found.found["aten::mm"].overloads["out"].registered == [(4, IMPL)]
    assert found.found["mylib::norm"].overloads[""].registered == [(5, NORM)]
    assert [found.of(each) for each in (IMPL, NORM, *OTHERS)] == ["aten::mm", "mylib::norm", None, None, None, None]
    assert found.of(Registration(1, "m.impl", "aten::relu")) is None  # it neither ran nor is registered


def test_without_a_reel_there_are_no_costs() -> None:
    found = operators(None, [(5, NORM), (5, Registration(9, "m.impl", "aten::relu.out", "CPU"))])
    assert [(row["name"], row["overload"], row["calls"]) for row in found.table().to_pylist()] == [
        ("aten::relu", "out", None),
        ("mylib::norm", "", None),
    ]
    assert found.found["aten::relu"].ran is None


def test_a_generated_kernel_is_in_no_file(ran: dict[str, Ran]) -> None:
    found = operators(ran, definitions={"ufunc_add_CPU": (1, 1)})
    assert found.found["aten::add_"].overloads["Tensor"].on_cpu.place is None


def test_without_torchgen_there_is_what_else_is_known(ran: dict[str, Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchgen", None)
    found = operators(ran, [(4, IMPL), (5, NORM)])
    assert "there is none here" in found.problem
    rows = found.table().select(["name", "overload", "schema", "self_ns"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("aten::add_", "Tensor", None, 5),
        ("aten::mm", "", None, 30),
        ("aten::native_layer_norm", "", None, 7),
        ("aten::no_such_op", "", None, 1),
        ("mylib::norm", "", None, 9),
    ]


def test_torchgen_is_asked_only_for_operators_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "operator_schemas", lambda: pytest.fail("it was asked"))
    assert [row["name"] for row in operators({}, [(5, NORM)]).table().to_pylist()] == ["mylib::norm"]
    assert operators(None).table().num_rows == 0


def test_formulas_as_text() -> None:
    formulas = [Derivative("self, other", "grad"), Derivative("self", "grad * 2", "AutogradCUDA")]
    assert derivative_text(formulas) == "self, other: grad\nself (AutogradCUDA): grad * 2"


@pytest.mark.programs
def test_every_operator_of_a_recorded_run_has_a_kernel(tmp_path: Path, read: Read) -> None:  # noqa: F811
    import torch

    layer = torch.nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=32, batch_first=True)
    optimizer = torch.optim.AdamW(layer.parameters())
    with torchreel.record(tmp_path / "run.reel", stacks=True):
        layer(torch.randn(2, 4, 16)).sum().backward()
        optimizer.step()
    reel = torchreel.load(tmp_path / "run.reel")
    ran = operator_costs(reel)
    found = operators(ran, [(4, IMPL)])
    rows = found.table().to_pylist()
    assert len(rows) > 50
    assert [row for row in rows if row["kernel"] is None] == []
    # What autograd computed the gradients of has a formula.
    differentiated = {name for name, each in ran.items() if each.backward.calls}
    assert {"aten::addmm", "aten::native_layer_norm"} <= differentiated
    assert {row["name"] for row in rows if row["derivative"]} >= differentiated
    places, files = kernel_costs(reel, found.kernels())
    assert files == {4: places[4, 31]} == {4: ran["aten::mm"].costs}
