"""Roofline and MFU: FLOP that can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analyze.gpu.traces import Trace
from tests.gpu_traces import gpu_reel
from torchreel.analyze.gpu.model.formulas import Work, work_of
from torchreel.analyze.gpu.model.peaks import Peak, parse_peak, peak_of
from torchreel.analyze.gpu.model.run import NO_KERNELS
from torchreel.analyze.gpu.roofline import NO_SHAPES, roofline
from torchreel.errors import OptionError

HALF = '["c10::Half", "c10::Half"]'


@pytest.mark.parametrize(
    ("name", "dims", "dtypes", "scalars", "work"),
    [
        ("aten::mm", "[[2, 3], [3, 4]]", HALF, '["", ""]', Work(48, 2 * (6 + 12 + 8), "float16")),
        ("aten::mm", "[[2, 3], [3, 4], [2, 4]]", '["float", "float", "float"]', "[]", Work(48, 4 * 26, "float32")),
        ("aten::linear", "[[5, 2, 3], [4, 3], [4]]", '["float", "float", "float"]', "[]", Work(240, 4 * 86, "float32")),
        (
            "aten::addmm",
            "[[4], [2, 3], [3, 4], [], []]",
            '["float", "float", "float", "Scalar"]',
            "[]",
            Work(48, 120, "float32"),
        ),
        (
            "aten::matmul",
            "[[7, 2, 3], [3]]",
            '["float", "float"]',
            "[]",
            Work(2 * 7 * 2 * 3, 4 * (42 + 3 + 14), "float32"),
        ),
        (
            "aten::conv2d",
            "[[1, 2, 5, 5], [4, 2, 3, 3], [], [], [], [], []]",
            '["float", "float", "", "ScalarList"]',
            '["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "1"]',
            Work(2 * 4 * 9 * 18, 4 * (50 + 72 + 36), "float32"),  # 3 by 3 outputs
        ),
        (
            "aten::convolution_backward",
            "[[1, 4, 3, 3], [1, 2, 5, 5], [4, 2, 3, 3]]",
            '["float", "float", "float"]',
            '["", "", "", "[0]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"]',
            Work(2 * 2 * 36 * 18, 4 * (36 + 50 + 72 + 50), "float32"),
        ),
        (
            "aten::scaled_dot_product_attention",
            "[[1, 2, 8, 16], [1, 2, 4, 16], [1, 2, 4, 16]]",
            '["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]',
            "[]",
            Work(2 * 2 * 8 * 4 * 32, 2 * (256 + 128 + 128 + 256), "bfloat16"),
        ),
    ],
)
def test_formulas(name: str, dims: str, dtypes: str, scalars: str, work: Work) -> None:
    assert work_of(name, dims, dtypes, scalars) == work


@pytest.mark.parametrize(
    ("name", "dims", "dtypes"),
    [
        ("aten::relu", "[[2, 3]]", '["float"]'),
        ("aten::mm", None, None),
        ("aten::mm", "[[2, 3], [4, 4]]", HALF),
        ("aten::mm", "[[2, 3]]", HALF),
        ("aten::mm", "{", HALF),
        ("aten::mm", "[[2, -3], [-3, 4]]", HALF),
        ("aten::mm", "[[2, 3], [3, 4]]", '["strange", "strange"]'),
        ("aten::conv2d", "[[1, 2, 5, 5], [4, 2, 3, 3]]", HALF),
    ],
)
def test_what_no_formula_fits(name: str, dims: str | None, dtypes: str | None) -> None:
    assert work_of(name, dims, dtypes, None) is None


def test_peaks() -> None:
    hopper = peak_of("NVIDIA H100 80GB HBM3")
    assert hopper is not None and hopper.of("bfloat16") == pytest.approx(989.4e12) and hopper.bytes == 3350e9
    assert peak_of("AMD Radeon Graphics") is None and peak_of(None) is None
    assert parse_peak("989T,3.35TB") == Peak({"": 989e12}, 3.35e12, "--peak")
    assert parse_peak("1.5P").of("float8") == 1.5e15


@pytest.mark.parametrize("text", ["", "fast", "0T", "-1T", "989T,", "989T,3", "1e400T"])
def test_peaks_that_cannot_be_read(text: str) -> None:
    with pytest.raises(OptionError, match="cannot be read: give FLOP per second"):
        parse_peak(text)


def products(trace: Trace, model: str | None = "NVIDIA H100 80GB HBM3") -> None:
    """A linear of 2 * 1000**3 FLOP, whose two kernels take 10 us, and the same run again in backward."""
    inputs = ("[[1000, 1000], [1000, 1000]]", '["c10::BFloat16", "c10::BFloat16"]')
    if model is not None:
        trace.add("devices", device="cuda:0", model=model)
    trace.step(0, 0, 100_000)
    trace.call("aten::linear", 0, 50, inputs=inputs, step=0)
    trace.call("aten::addmm", 5, 45, inputs=inputs, step=0)
    first, second = trace.launch(10, 12, step=0), trace.launch(20, 22, step=0)
    trace.call("CheckpointFunctionBackward", 60, 100, "backward", 1, step=0)
    trace.call("aten::mm", 70, 90, thread=1, inputs=inputs, step=0)
    again = trace.launch(75, 76, thread=1, step=0)
    trace.kernel("gemm", 100, 8_100, first)
    trace.kernel("bias", 8_100, 10_100, second)
    trace.kernel("gemm", 20_000, 30_000, again)


def test_work_is_shared_by_the_kernels_of_the_outermost_op(tmp_path: Path) -> None:
    products(trace := Trace())
    found = roofline(trace.write(tmp_path / "x.reel"))
    rows = {row["op"]: row for row in found.rows.to_pylist()}
    assert set(rows) == {"aten::linear", "aten::mm"}
    linear = rows["aten::linear"]
    assert (linear["calls"], linear["kernels"], linear["device_ns"], linear["flops"]) == (1, 2, 10_000, 2 * 10**9)
    assert (linear["bytes"], linear["dtype"], linear["bound"]) == (6 * 10**6, "bfloat16", "compute")
    assert linear["tflops"] == pytest.approx(200)
    assert linear["percent"] == pytest.approx(100 * 200 / 989.4)
    (whole,) = found.utilisation
    assert (whole.flops, whole.recompute_flops, whole.devices, whole.window_ns) == (2 * 10**9, 2 * 10**9, 1, 100_000)
    assert whole.mfu_percent == pytest.approx(100 * 2e9 / (100e-6 * 989.4e12))
    assert whole.hfu_percent == pytest.approx(2 * (whole.mfu_percent or 0))
    assert found.notes == ()


def test_an_unknown_device_says_so_and_takes_a_peak(tmp_path: Path) -> None:
    products(trace := Trace(), "Strange 1")
    reel = trace.write(tmp_path / "x.reel")
    found = roofline(reel)
    assert found.utilisation[0].mfu_percent is None and found.rows["percent"].to_pylist() == [None, None]
    assert found.notes == ("The device 'Strange 1' has no known peak: give it with --peak, as in --peak 989T,3.35TB.",)
    given = roofline(reel, parse_peak("400T"))
    assert given.rows["percent"].to_pylist() == pytest.approx([50, 50])
    assert given.utilisation[0].mfu_percent == pytest.approx(5)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    trace = Trace()
    trace.call("aten::mm", 0, 1)
    assert roofline(trace.write(tmp_path / "x.reel")).notes == (NO_KERNELS,)
    other = Trace()
    other.add("devices", device="cuda:0", model="Tesla T4")
    other.call("aten::mm", 0, 10)
    other.kernel("gemm", 5, 1_500_005, other.launch(1, 2))
    assert roofline(other.write(tmp_path / "y.reel")).notes == (
        "1.5 ms of kernels belong to ops that have a formula, but whose shapes or arguments the recording lacks: "
        "they count as no FLOP.",
        NO_SHAPES,
    )


def test_no_real_op_exceeds_its_roof() -> None:
    """All products of a BERT on an H100 were counted, and none is faster than the device."""
    found = roofline(gpu_reel("h100_bert_small.json.gz"))
    assert sum(found.rows["calls"].to_pylist()) == 26 + 4
    assert all(0 < percent < 100 for percent in found.rows["percent"].to_pylist())
    assert found.utilisation[0].flops == sum(found.rows["flops"].to_pylist()) == 8_192_059_392
    assert found.notes == ()
