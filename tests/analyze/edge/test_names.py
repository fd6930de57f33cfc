"""One name for what formats call differently."""

from __future__ import annotations

import pytest

from torchreel.analyze.edge.names import canonical


@pytest.mark.parametrize(
    ("names", "one"),
    [
        (
            "aten::conv2d aten::_convolution aten::convolution.default torch.ops.aten.conv2d.default Conv FusedConv "
            "NhwcFusedConv com.microsoft.FusedConv QLinearConv ConvInteger native_call_convolution.out "
            "aten::mkldnn_convolution aoti_torch_cpu_convolution aoti_torch_cpu_mkldnn__convolution_pointwise",
            "conv",
        ),
        (
            "aten::linear aten::addmm Gemm MatMul FusedMatMul native_call_addmm.out aten::bmm aoti_torch_cpu_addmm_out",
            "matmul",
        ),
        (
            "aten::batch_norm BatchNormalization native_call__native_batch_norm_legit_no_training.out",
            "batch_norm",
        ),
        ("aten::hardtanh_ aten::relu6 aten::clamp.Tensor Clip native_call_hardtanh.out", "clamp"),
        ("aten::add.Tensor aten::add_ Add native_call_add.out aten::add.Scalar", "add"),
        ("aten::view Reshape aten::_unsafe_view native_call_view_copy.out aten::flatten.using_ints", "reshape"),
        ("aten::scaled_dot_product_attention aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::max_pool2d aten::max_pool2d_with_indices MaxPool", "max_pool"),
        ("aten::div.Tensor_mode aten::div_ Div", "div"),
        ("aten::embedding Gather", "gather"),
        ("aten::relu_ Relu", "relu"),
        ("aten::lstm.input LSTM", "lstm"),
        # Names of which nothing is known stay.
        ("aten::log2", "log2"),
        ("aten::atan2", "atan2"),
        ("cpp_fused_add_relu_0", "cpp_fused_add_relu_0"),
    ],
)
def test_names(names: str, one: str) -> None:
    assert {name: canonical(name) for name in names.split()} == dict.fromkeys(names.split(), one)


def test_names_with_what_a_delegate_says_of_its_kernel() -> None:
    assert canonical("Convolution (NHWC, F32) IGEMM") == "conv"
    assert canonical("Fully Connected (NC, F32) GEMM #1") == "matmul"


@pytest.mark.parametrize("name", ["", ".", "::", "___", "aten::", "(", "a b", "torch.ops.", "é.Ü", "x" * 1000])
def test_names_that_are_none(name: str) -> None:
    assert isinstance(canonical(name), str)
