"""Autocast on the CPU with CUDA's lists: what is float32 on a GPU is float32 here too, so that memory is the same.

    from cuda_autocast import cuda_autocast
    with cuda_autocast(torch.bfloat16):
        loss = model(x)

Under autocast, CUDA computes exp, log, pow, sum and others in float32, which the CPU leaves in bfloat16, and casts for
einsum as a whole, with weights that are cast once: a program that is recorded on the CPU to predict its memory on a GPU
has results of half the size there, and more casts.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

# What CUDA's autocast casts to float32, but for resampling and the rarer losses.
FLOAT32 = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm nll_loss mse_loss l1_loss
    cosine_similarity kl_div smooth_l1_loss huber_loss binary_cross_entropy_with_logits logsumexp cdist dist"""

# What it computes in float32 by asking the op for a result of that type.
FLOAT32_RESULT = "sum sum.dim_IntList prod prod.dim_int softmax.int log_softmax.int cumsum cumprod"

# What it casts down.
LOW = "einsum mv addmv addr prelu chain_matmul linalg_multi_dot linalg_vecdot lstm_cell gru_cell"

_library: torch.library.Library | None = None
_weights: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # those that were cast, with what they were cast to


@contextmanager
def cuda_autocast(dtype: torch.dtype = torch.bfloat16) -> Iterator[None]:
    """`torch.autocast("cpu", dtype)`, which from the first call on follows CUDA's lists in this process."""
    global _library
    if _library is None:
        _library = torch.library.Library("aten", "IMPL")
        for names, rule in ((FLOAT32, _cast_up), (FLOAT32_RESULT, _ask_for_float32), (LOW, _cast_down)):
            for name in names.split():
                _define(name, rule)
    with torch.autocast("cpu", dtype):
        yield
    if not torch.is_autocast_enabled("cpu"):
        _weights.clear()


def _define(name: str, rule: Callable[..., Any]) -> None:
    """Give an op its rule, unless the CPU's autocast has one for it already."""
    assert _library is not None
    if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU"):
        return
    base, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, base), overload or "default")
    without_autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def kernel(*arguments: Any, **named: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(without_autocast):
            return rule(op, *arguments, **named)

    _library.impl(name, kernel, "AutocastCPU")


def _cast_up(op: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return op(*map(_float32, arguments), **{name: _float32(value) for name, value in named.items()})


def _ask_for_float32(op: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    if _is_low(arguments[0]) and named.get("dtype") is None:
        named["dtype"] = torch.float32
    return op(*arguments, **named)


def _cast_down(op: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return op(*map(_low, arguments), **{name: _low(value) for name, value in named.items()})


def _float32(value: Any) -> Any:
    return value.to(torch.float32) if _is_low(value) else value


def _low(value: Any) -> Any:
    """Weights are cast once until the end of autocast, as torch does it."""
    if isinstance(value, list | tuple):
        return [_low(item) for item in value]
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.float32:
        return value
    if not (value.requires_grad and value.is_leaf):
        return value.to(torch.get_autocast_dtype("cpu"))
    if id(value) not in _weights:
        _weights[id(value)] = (value, value.to(torch.get_autocast_dtype("cpu")))
    return _weights[id(value)][1]


def _is_low(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
