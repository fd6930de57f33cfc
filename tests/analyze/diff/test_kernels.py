"""Kernels of two reels compared: renamed, moved, new and gone ones, and sums that are exact."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchreel
from tests.analyze.gpu.traces import Trace
from tests.gpu_traces import gpu_reel
from torchreel.analyze.diff import kernel_changes
from torchreel.analyze.diff.families import family_of
from torchreel.analyze.gpu.model.run import NO_KERNELS

SHAPES = ("[[2, 3], [3, 4]]", '["float", "float"]')


def step(trace: Trace, number: int, kernels: list[tuple[str, str, int]]) -> None:
    """A step that calls ops, each with one kernel: op, kernel, how long it took."""
    start = 10_000 * number
    trace.step(number, start, start + 10_000)
    trace.call(f"ProfilerStep#{number}", start, start + 10_000, "range", step=number)
    for place, (op, kernel, dur) in enumerate(kernels):
        begin = start + 100 * (place + 1)
        trace.call(op, begin, begin + 50, inputs=SHAPES, step=number)
        launch = trace.launch(begin + 10, begin + 20, step=number)
        trace.kernel(kernel, begin + 1_000, begin + 1_000 + dur, launch)


def reel(path: Path, *steps: list[tuple[str, str, int]]) -> torchreel.Reel:
    trace = Trace()
    for number, kernels in enumerate(steps):
        step(trace, number, kernels)
    return trace.write(path)


OLD = [("aten::mm", "ampere_sgemm_128x64", 70), ("aten::relu", "relu_kernel", 11), ("aten::sin", "sin_kernel", 5)]
NEW = [("aten::mm", "sm90_xmma_gemm_f32", 40), ("aten::relu", "relu_kernel", 13), ("aten::cos", "cos_kernel", 6)]


def test_a_renamed_kernel_meets_the_old_one(tmp_path: Path) -> None:
    found = kernel_changes(reel(tmp_path / "a.reel", OLD), reel(tmp_path / "b.reel", NEW))
    rows = [
        (row["op"], row["a_kernel"], row["b_kernel"], row["match"], row["a_ns"], row["b_ns"], row["change_ns"])
        for row in found.rows.to_pylist()
    ]
    assert rows == [
        ("aten::mm", "ampere_sgemm_128x64", "sm90_xmma_gemm_f32", "family", 70, 40, -30.0),
        ("aten::cos", None, "cos_kernel", "new", 0, 6, 6.0),
        ("aten::sin", "sin_kernel", None, "gone", 5, 0, -5.0),
        ("aten::relu", "relu_kernel", "relu_kernel", "name", 11, 13, 2.0),
    ]
    assert (found.device_ns.a, found.device_ns.b, found.device_ns.change) == (86, 59, -27)
    assert found.notes == ()


def test_steps_are_averaged(tmp_path: Path) -> None:
    """Three steps of which the middle is compared, with one of two."""
    a = reel(tmp_path / "a.reel", [*OLD, *OLD], OLD, [])
    b = reel(tmp_path / "b.reel", [], OLD, OLD, NEW)
    found = kernel_changes(a, b)
    assert (found.per, found.a_steps, found.b_steps) == ("step", 1, 2)
    assert found.device_ns.change == 0
    assert {row["a_count"]: row["b_count"] for row in found.rows.to_pylist()} == {1: 2}
    assert set(found.rows["change_ns"].to_pylist()) == {0.0}


def test_a_kernel_that_another_op_launches(tmp_path: Path) -> None:
    found = kernel_changes(
        reel(tmp_path / "a.reel", [("aten::mm", "gemm", 10)]), reel(tmp_path / "b.reel", [("triton", "gemm", 7)])
    )
    (row,) = found.rows.to_pylist()
    assert (row["op"], row["match"], row["change_ns"]) == (None, "moved", -3.0)


def test_reels_without_kernels(tmp_path: Path) -> None:
    traces = [Trace(), Trace()]
    for trace in traces:
        trace.call("aten::mm", 0, 10)
    found = kernel_changes(*(trace.write(tmp_path / f"{n}.reel") for n, trace in enumerate(traces)))
    assert (found.rows.num_rows, found.notes, found.device_ns.change) == (0, (NO_KERNELS,), 0)


@pytest.mark.parametrize(
    ("name", "kind", "family"),
    [
        ("ncclDevKernel_AllReduce", "communication", "communication"),
        ("Memset (Device)", "set", "copy"),
        ("void pytorch_flash::flash_fwd_kernel<>", "compute", "attention"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel", "compute", "norm"),
        ("Cijk_Alik_Bljk_BBS_BH", "compute", "gemm"),
        ("nvjet_tst_128x256_64x4", "compute", "gemm"),
        ("triton_poi_fused_add_0", "compute", "elementwise"),
        ("triton_red_fused_mean_1", "compute", "reduce"),
        ("void fbgemm_gpu::bounds_check", "compute", "other"),
    ],
)
def test_families(name: str, kind: str, family: str) -> None:
    assert family_of(name, kind) == family


@pytest.mark.parametrize(
    "pair",
    [
        ("compare_base.json.gz", "compare_test.json.gz"),
        ("a100_sampled_rank0of128.json.gz", "a100_sampled_rank1of128.json.gz"),
        ("mi300_vit.json.gz", "h100_bert_small.json.gz"),
    ],
)
def test_changes_of_real_traces_add_up_exactly(pair: tuple[str, str]) -> None:
    a, b = (gpu_reel(name) for name in pair)
    found = kernel_changes(a, b)
    rows = found.rows.to_pylist()
    assert sum(row["a_ns"] for row in rows) == found.device_ns.a * max(found.a_steps, 1)
    assert sum(row["b_ns"] for row in rows) == found.device_ns.b * max(found.b_steps, 1)
    assert sum(row["change_ns"] for row in rows) == found.device_ns.change
    back = kernel_changes(b, a)
    assert back.device_ns.change == -found.device_ns.change


def test_the_pair_for_comparing() -> None:
    """The test lacks one elementwise kernel of 4 us; both have two steps, and two kernels after them."""
    found = kernel_changes(gpu_reel("compare_base.json.gz"), gpu_reel("compare_test.json.gz"))
    changed = [row for row in found.rows.to_pylist() if row["change_ns"]]
    assert [(row["family"], row["a_count"], row["b_count"], row["change_ns"]) for row in changed] == [
        ("elementwise", 3, 2, -2000.0)
    ]
    assert found.notes == tuple(
        f"2 kernels of {side} belong to no compared step, and are left out." for side in ("A", "B")
    )


def test_the_same_ops_on_two_makes_of_device() -> None:
    """A ViT on ROCm, a BERT on CUDA: all products meet, though no kernel has the same name."""
    found = kernel_changes(gpu_reel("mi300_vit.json.gz"), gpu_reel("h100_bert_small.json.gz"))
    (products,) = (row for row in found.rows.to_pylist() if row["op"] == "aten::addmm")
    assert (products["match"], products["family"], products["a_count"], products["b_count"]) == (
        "family",
        "gemm",
        73,
        26,
    )
