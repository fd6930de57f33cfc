"""One name for what formats call differently: aten::conv2d, Conv, FusedConv and native_call_convolution.out are conv.

Two formats of one model are compared op by op, so that ops must be told to be the same. Names that nothing is known of
stay as they are, without the namespace, the overload and the marks of variants that do the same.
"""

from __future__ import annotations

import re

# What stands before or after the name of an op without changing what it computes.
_BEFORE = re.compile(
    r"^(?:native_call_|opcode_call_|aoti_torch_(?:cpu_|cuda_)?|quantized_decomposed_|_*unsafe_|_*mkldnn_|cudnn_|nhwc|fused|qlinear)+"
)
_AFTER = re.compile(r"(?:_copy|_out|_legit_no_training|_legit|_impl_index|_with_indices|_for_cpu|_pointwise|integer)+$")

_SAME = {
    "conv": ("conv", "conv1d", "conv2d", "conv3d", "convolution", "thnn_conv2d", "slow_conv2d", "convolutionpointwise"),
    "conv_transpose": ("convtranspose", "conv_transpose", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    "matmul": (
        *("linear", "addmm", "mm", "bmm", "baddbmm", "matmul", "gemm", "fullyconnected", "batchmatrixmultiply"),
        *("linear_pointwise", "linear_dynamic", "matrixmultiply"),
    ),
    "batch_norm": ("batch_norm", "native_batch_norm", "batchnormalization"),
    "layer_norm": ("layer_norm", "native_layer_norm", "layernormalization", "skiplayernormalization"),
    "group_norm": ("group_norm", "native_group_norm", "groupnormalization"),
    "clamp": ("clamp", "hardtanh", "relu6", "clip", "clamp_min", "clamp_max"),
    "avg_pool": ("avg_pool", "avg_pool2d", "averagepool", "averagepooling", "globalaveragepool", "adaptive_avg_pool2d")
    + ("globalaveragepooling",),
    "max_pool": ("max_pool", "max_pool2d", "maxpool", "maxpooling", "adaptive_max_pool2d"),
    "mean": ("mean", "reducemean"),
    "sum": ("sum", "reducesum"),
    "attention": (
        *("scaled_dot_product_attention", "scaled_dot_product_flash_attention", "scaled_dot_product_attention_math"),
        *("multiheadattention", "attention", "scaledotproductattention"),
    ),
    "reshape": ("reshape", "view", "flatten", "unflatten", "reshape_alias", "et_view"),
    "transpose": ("transpose", "permute", "t", "numpy_t"),
    "unsqueeze": ("unsqueeze", "expanddims"),
    "gather": ("gather", "embedding", "index_select", "index"),
    "cat": ("cat", "concat", "concatenate", "concatenation"),
    "split": ("split", "chunk", "split_with_sizes", "tensor_split"),
    "cast": ("cast", "to", "to_dim_order", "type_as"),
    "slice": ("slice", "select", "narrow", "strided_slice"),
    "add": ("add", "add_relu"),
    "rsub": ("rsub",),
    "silu": ("silu", "swish", "quickgelu"),
    "gelu": ("gelu", "fastgelu", "biasgelu"),
    "softmax": ("softmax", "safe_softmax"),
    "mul": ("mul", "multiply"),
    "sub": ("sub", "subtract"),
    "div": ("div", "divide"),
}
_CANONICAL = {_name.replace("_", ""): _one for _one, _names in _SAME.items() for _name in (*_names, _one)}


def canonical(name: str) -> str:
    """The name of the op that this is a format's name of."""
    plain = _BEFORE.sub("", _bare(name)).strip("_")
    shorter = _AFTER.sub("", plain)
    for known in (plain, shorter):
        found = _CANONICAL.get(known.replace("_", ""))
        if found is not None:
            return found
    return shorter or name


def _bare(name: str) -> str:
    """Without namespace, overload, and what stands in brackets behind it."""
    text = name.partition("(")[0].replace(" ", "")
    if text.startswith("torch.ops."):  # torch.ops.aten.conv2d.default
        text = text.removeprefix("torch.ops.").replace(".", "::", 1)
    _, of_torch, op = text.rpartition("::")
    last = op.rpartition(".")[2]
    # ONNX puts the domain before an op, torch the overload behind it.
    return (last if last[:1].isupper() and not of_torch else op.partition(".")[0]).lower()
