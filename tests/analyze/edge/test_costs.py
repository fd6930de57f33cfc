"""What a deployed model costs, from trees of calls whose times can be added up by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchreel
from tests.analyze.edge.reels import edge_reel, run
from tests.synthetic import Call, Process, call, write_reel
from torchreel.analyze.edge.costs import edge_costs
from torchreel.analyze.edge.inputs import input_bytes
from torchreel.analyze.edge.modules import ModuleCost
from torchreel.analyze.edge.ops import OpCost
from torchreel.analyze.edge.totals import RunTotals
from torchreel.errors import EdgeError, TorchreelError

CONV = "[[1, 3, 4, 4], [8, 3, 1, 1], [], []]"
DTYPES = {CONV: '["float", "float", "", "ScalarList"]'}


def conv(ns: int, flops: int | None = 768) -> Call:
    """conv2d as torch calls it: ops within ops, of which the one in the middle has a formula."""
    inner = call("aten::_convolution", ns, call("aten::mkldnn_convolution", 2 * ns), module="Net.features.0")
    convolution = call("aten::convolution", 1, inner, module="Net.features.0", flops=flops)
    return call("aten::conv2d", 1, convolution, module="Net.features.0", inputs=CONV)


def relu(ns: int) -> Call:
    return call("aten::relu_", ns, module="Net.features.1")


def submodule(*ops: Call) -> Call:
    return call("nn.Module: Conv2d", 5, *ops, kind="module", module="Net.features.0")


@pytest.fixture
def reel(tmp_path: Path) -> torchreel.Reel:
    """Three runs of 200, 330 and 150 ns. In the first conv2d is called within a module and takes 92 ns."""
    return edge_reel(
        tmp_path / "run.reel",
        run(53, submodule(conv(30)), relu(50)),
        run(78, conv(50), relu(100)),
        run(22, conv(10), relu(30), call("aten::dropout", 66, module="Net")),
        dtypes=DTYPES,
    )


def test_totals(reel: torchreel.Reel) -> None:
    assert edge_costs(reel).totals == RunTotals(
        runs=3,
        ns=200,
        low_ns=175,
        high_ns=265,
        ops_ns=142,
        between_ns=58,
        ops=7 / 3,
        flops=768,
        peak_bytes=None,
    )
    assert edge_costs(reel).totals.flops_per_s == 768 / 200e-9


def test_ops_are_the_outermost_ones(reel: torchreel.Reel) -> None:
    # 4 bytes of 48 pixels and 24 weights. The dropout is in one of three runs: its median is 0.
    assert edge_costs(reel).ops == [
        OpCost("aten::conv2d", None, 1.0, 92, 0.46, 768, 288, None),
        OpCost("aten::relu_", None, 1.0, 50, 0.25, None, None, None),
        OpCost("aten::dropout", None, 1 / 3, 0, 0.0, None, None, None),
    ]


def test_nested_ops_have_the_time_that_no_other_has(reel: torchreel.Reel) -> None:
    costs = edge_costs(reel, nested=True)
    assert [(op.name, op.calls, op.ns, op.flops) for op in costs.ops] == [
        ("aten::mkldnn_convolution", 1.0, 60, None),
        ("aten::relu_", 1.0, 50, None),
        ("aten::_convolution", 1.0, 30, None),
        ("aten::conv2d", 1.0, 1, None),
        ("aten::convolution", 1.0, 1, 768),
        ("aten::dropout", 1 / 3, 0, None),
    ]
    assert (costs.totals.ops_ns, costs.totals.flops) == (142, 768)


def test_modules(reel: torchreel.Reel) -> None:
    assert edge_costs(reel).modules == [
        ModuleCost("Net", "Module", 0, 142, 0.71, 768, None),
        ModuleCost("Net.features", "Module", 0, 142, 0.71, 768, None),
        ModuleCost("Net.features.0", "Module", 92, 92, 0.46, 768, None),
        ModuleCost("Net.features.1", "Module", 50, 50, 0.25, None, None),
    ]


def test_flops_of_an_op_and_of_what_it_calls_are_one_work(tmp_path: Path) -> None:
    lite = call("aten::linear", 1, call("aten::addmm", 9, flops=100), kind="lite", flops=100)
    both = call("aten::matmul", 1, call("aten::mm", 5, flops=10), call("aten::mm", 5, flops=20))
    costs = edge_costs(edge_reel(tmp_path / "run.reel", run(0, lite, both)))
    assert {op.name: op.flops for op in costs.ops} == {"aten::linear": 100, "aten::matmul": 30}
    assert costs.totals.flops == 130


def test_backends(tmp_path: Path) -> None:
    delegate = call("DELEGATE_CALL", 10, call("Convolution", 80, kind="backend"), kind="backend")
    ops = call("Conv", 100, kind="backend", module="Net.conv"), delegate, call("aten::add", 10)
    reel = edge_reel(
        tmp_path / "run.reel",
        run(0, call("model_run", 5, *ops, kind="backend")),
        backends={"Conv": "ONNX Runtime CPU", "DELEGATE_CALL": "ExecuTorch", "Convolution": "XNNPACK"},
    )
    # What is around others is a place, the delegate too, since it tells what it does.
    assert [(op.name, op.backend, op.ns) for op in edge_costs(reel).ops] == [
        ("Conv", "ONNX Runtime CPU", 100),
        ("Convolution", "XNNPACK", 80),
        ("aten::add", None, 10),
    ]
    totals = edge_costs(reel).totals
    assert (totals.ns, totals.ops_ns, totals.between_ns) == (205, 190, 15)
    assert [(module.path, module.self_ns, module.total_ns) for module in edge_costs(reel).modules] == [
        ("Net", 0, 100),
        ("Net.conv", 100, 100),
        ("", 90, 90),
    ]


def test_kernels_that_a_delegate_numbers_are_one_op(tmp_path: Path) -> None:
    kernels = [call(f"Convolution (NHWC) #{number}", 10 * number, kind="backend") for number in (1, 2)]
    reel = edge_reel(
        tmp_path / "run.reel",
        run(0, *kernels, call("my op #1", 5), call("my op #2", 5)),
        backends={kernel.name: "XNNPACK" for kernel in kernels},
    )
    assert [(op.name, op.calls, op.ns) for op in edge_costs(reel).ops] == [
        ("Convolution (NHWC)", 2.0, 30),
        ("my op #1", 1.0, 5),
        ("my op #2", 1.0, 5),
    ]


def test_functions_and_ranges_are_places(tmp_path: Path) -> None:
    scripted = call("forward", 3, call("aten::relu", 7), kind="torchscript")
    ranged = call("my range", 3, call("aten::add", 9), kind="range")
    costs = edge_costs(edge_reel(tmp_path / "run.reel", run(1, scripted, ranged)))
    assert [(op.name, op.ns) for op in costs.ops] == [("aten::add", 9), ("aten::relu", 7)]
    assert (costs.totals.ops_ns, costs.totals.between_ns) == (16, 7)


def test_a_thread_of_the_runtime_belongs_to_the_run_of_its_time(tmp_path: Path) -> None:
    reel = edge_reel(
        tmp_path / "run.reel",
        run(40, call("Conv", 60)),
        run(100),
        threads={"pool": [call("Relu", 80), call("Relu", 70), call("Relu", 100)]},
    )
    costs = edge_costs(reel)
    # Relu begins at 0 and 80, in the first run, and at 150, in the second, which begins at 100.
    assert [(op.name, op.calls, op.ns) for op in costs.ops] == [("Relu", 1.5, 125), ("Conv", 0.5, 30)]
    assert costs.totals.ops_ns == (150 + 100) / 2


def test_memory(tmp_path: Path) -> None:
    reel = edge_reel(
        tmp_path / "run.reel",
        run(10, conv(30), relu(50)),
        run(10, conv(30), relu(50)),
        # Ids: the run is 0, conv2d 1, what it calls 2, 3 and 4, relu_ 5; the second run is 6.
        allocs=[
            *[(5, "alloc", 100, 3), (6, "alloc", 60, 4), (7, "free", 60, 4), (95, "alloc", 40, 5)],
            *[(110, "alloc", 300, None), (190, "free", 100, None)],
            (1000, "alloc", 5000, None),
        ],
    )
    costs = edge_costs(reel)
    assert costs.totals.peak_bytes == 440
    assert {op.name: op.alloc_bytes for op in costs.ops} == {"aten::conv2d": 80, "aten::relu_": 20}
    assert {module.path: module.alloc_bytes for module in costs.modules}["Net"] == 100
    nested = edge_costs(reel, nested=True).ops
    assert {op.name: op.alloc_bytes for op in nested if op.alloc_bytes} == {
        "aten::_convolution": 50,
        "aten::mkldnn_convolution": 30,
        "aten::relu_": 20,
    }


def test_counters(tmp_path: Path) -> None:
    counters = [(1, "cycles", 70), (1, "instructions", 90), (2, "cycles", 60), (3, "cycles", 6), (5, "cycles", 30)]
    ops = call("aten::linear", 1, call("aten::addmm", 1)), call("aten::relu", 1)
    reel = edge_reel(tmp_path / "run.reel", run(1, *ops), run(1, *ops), counters=counters)
    assert {op.name: op.counters for op in edge_costs(reel).ops} == {
        "aten::linear": {"cycles": 50, "instructions": 45},
        "aten::relu": {"cycles": 3},
    }


def test_a_run_without_ops(tmp_path: Path) -> None:
    costs = edge_costs(edge_reel(tmp_path / "run.reel", run(70)))
    assert (costs.ops, costs.modules) == ([], [])
    assert costs.totals == RunTotals(1, 70, 70, 70, 0, 70, 0.0, None, None)


def test_runs_of_no_time(tmp_path: Path) -> None:
    costs = edge_costs(edge_reel(tmp_path / "run.reel", run(0, call("aten::relu", 0, flops=1))))
    assert (costs.ops[0].share, costs.ops[0].flops_per_s, costs.totals.flops_per_s) == (0.0, None, None)


def test_a_reel_without_runs(tmp_path: Path) -> None:
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": [call("aten::add", 3)]})))
    with pytest.raises(EdgeError) as error:
        edge_costs(reel)
    assert isinstance(error.value, TorchreelError)
    assert str(error.value) == (
        f"{reel.path} holds no call of a model: call the model within torchreel.EdgeProfiler, or give the reel that "
        "`torchreel edge` wrote."
    )


@pytest.mark.parametrize(
    ("dims", "dtypes", "size"),
    [
        ("[[2, 3], [], [4]]", '["float", "Scalar", "long int"]', 56),
        ("[[2, 3]]", '["float16"]', 12),
        ("[[]]", '["double"]', 8),
        ("[[], []]", '["", "ScalarList"]', None),
        ("[[[2], [3]]]", '["TensorList"]', None),  # the dtypes of a list's tensors are not kept
        ("[[2]]", '["unheard of"]', None),
        ("[[2]]", None, None),
        (None, None, None),
        ("{", "[", None),
        ("3", "[]", None),
    ],
)
def test_input_bytes(dims: str | None, dtypes: str | None, size: int | None) -> None:
    assert input_bytes(dims, dtypes) == size
