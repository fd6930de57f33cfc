"""What a kernel does, by its name: kernels of one family do the same work, whatever they are called."""

from __future__ import annotations

import functools
import re

FAMILIES = ("communication", "copy", "attention", "norm", "gemm", "reduce", "elementwise", "other")

_NAMES = (
    ("attention", r"flash|fmha|attn|attention|\bmha|sdpa"),
    ("norm", r"layer_?norm|batch_?norm|rms_?norm|group_?norm|instance_?norm|\bbn_|_bn_|norm_fwd|norm_bwd"),
    (
        "gemm",
        r"(?<!fb)gemm|gemv|cutlass|xmma|Cijk|matmul|nvjet|wmma|triton_mm|triton_tem|conv|winograd|dgrad|wgrad|splitK_",
    ),
    ("reduce", r"reduce|softmax|triton_red|triton_per|arg_?max|arg_?min|\bsum|cumsum|scan|sort|topk"),
    (
        "elementwise",
        r"elementwise|pointwise|triton_poi|vectorized|unrolled|multi_tensor_apply|fill|index|gather|scatter|dropout"
        r"|relu|gelu|silu|sigmoid|tanh|add|mul|cat",
    ),
)
_PATTERNS = tuple((family, re.compile(pattern, re.IGNORECASE)) for family, pattern in _NAMES)


@functools.lru_cache(maxsize=65536)
def family_of(name: str, kind: str) -> str:
    """The family of a kernel, by its kind if that says it, else by the first pattern that its name has."""
    if kind == "communication":
        return kind
    if kind in ("copy", "set"):
        return "copy"
    return next((family for family, pattern in _PATTERNS if pattern.search(name)), "other")
