"""Kernels by name, copies by direction and tensor cores, counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analyze.gpu.by_hand import kernel, reel_of
from torchreel.analyze.gpu.activities import activities
from torchreel.analyze.gpu.copies import copies
from torchreel.analyze.gpu.kernels import kernels
from torchreel.analyze.gpu.tensor_cores import tensor_cores


def test_kernels_by_name(tmp_path: Path) -> None:
    rows = [
        kernel(0, 10, name="a"),
        kernel(20, 35, name="a"),
        kernel(40, 70, name="b"),
        kernel(80, 85, name=None, kind=None),
    ]
    found = kernels(activities(reel_of(tmp_path / "run.reel", {"kernels": rows}))).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("b", "compute", 1, 30, 50.0, 30, 30, 30),
        ("a", "compute", 2, 25, 100 * 25 / 60, 10, 15, 13),
        ("(no name)", "compute", 1, 5, 100 * 5 / 60, 5, 5, 5),
    ]


def test_copies_by_direction(tmp_path: Path) -> None:
    rows = [
        kernel(0, 10, kind="copy", direction="HtoD", bytes=100),
        kernel(20, 35, kind="copy", direction="HtoD", bytes=50),
        kernel(40, 70, kind="copy", direction="DtoD"),
        kernel(80, 82, kind="copy"),
        kernel(90, 91, kind="set", bytes=7),
        kernel(95, 99),
    ]
    found = copies(activities(reel_of(tmp_path / "run.reel", {"kernels": rows}))).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("DtoD", 1, 0, 30),
        ("HtoD", 2, 150, 25),
        ("(no direction)", 1, 0, 2),
        ("Memset", 1, 7, 1),
    ]


@pytest.mark.parametrize(
    ("name", "uses"),
    [
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", True),
        ("turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_tn", True),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn", True),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", True),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4>", True),
        (
            "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x64x64_warpgroupsize1x1x1_gmma",
            True,
        ),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", True),
        ("Cijk_Alik_Bljk_HHS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB1", True),
        ("volta_sgemm_128x32_nt", False),
        ("elementwise_kernel<18840>", False),
        ("void at::native::vectorized_elementwise_kernel<4>", False),
    ],
)
def test_names_that_say_tensor_cores(tmp_path: Path, name: str, uses: bool) -> None:
    rows = [kernel(0, 30, name=name), kernel(40, 50, name="other"), kernel(60, 99, kind="copy", name="884")]
    found = tensor_cores(activities(reel_of(tmp_path / "run.reel", {"kernels": rows}))).to_pylist()
    used = 30 if uses else 0
    assert found == [
        {"process": 0, "device": "cuda:0", "kernel_ns": 40, "tensor_core_ns": used, "percent": 100 * used / 40}
    ]
