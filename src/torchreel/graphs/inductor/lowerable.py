"""Which ops may be a part of a kernel that Inductor generates: those of one element each, and reductions.

With exact=True it is only ops whose result is defined to the last bit, and on which the generated code and torch's own
kernels agree for every length, tails included. Left out, since they need not: an alpha (torch has one rounding where
the generated code has two), maximum, minimum and clamp (which of two zeros is given), numbers of 16 bits (rounded once
for a chain, and after each op by torch), square roots and tanh (which torch has from MKL), other transcendental
functions (whose vectors and tails differ in torch), and sums.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from torchreel.program.model import Named, Op, Ref, Slot

_EXACT_DTYPES = ("float32", "float64", "bool")
_DTYPES = (*_EXACT_DTYPES, "float16", "bfloat16", "int64", "int32")


def _always(_: Op) -> bool:
    return True


def _unscaled(op: Op) -> bool:
    return op.args[-1] == 1


def _squared(op: Op) -> bool:
    return op.args[1] == 2


def _undivided(op: Op) -> bool:
    return len(op.args) == 2  # without a rounding mode


def _plain(op: Op) -> bool:
    """Whether a copy keeps the layout: it names none."""
    return all(not isinstance(value, Named) or value.kind != "layout" for value in op.args)


def _both(names: str) -> list[str]:
    """Each, and the one that works in place: "add.Tensor" and "add_.Tensor"."""
    found = []
    for name in names.split():
        stem, dot, overload = name.partition(".")
        found += [f"aten::{name}", f"aten::{stem}_{dot}{overload}"]
    return found


_EXACT: dict[str, Callable[[Op], bool]] = {
    **dict.fromkeys(_both("add.Tensor sub.Tensor add.Scalar sub.Scalar rsub.Tensor rsub.Scalar"), _unscaled),
    **dict.fromkeys(_both("mul.Tensor mul.Scalar neg abs relu reciprocal floor ceil trunc fill.Scalar"), _always),
    **dict.fromkeys(_both("div.Tensor div.Scalar"), _undivided),
    **dict.fromkeys(_both("eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor"), _always),
    **dict.fromkeys(_both("eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar"), _always),
    **dict.fromkeys(_both("logical_and logical_or logical_not masked_fill.Scalar"), _always),
    **dict.fromkeys(_both("bitwise_and.Tensor bitwise_or.Tensor bitwise_not"), _always),  # of booleans
    **dict.fromkeys(_both("pow.Tensor_Scalar"), _squared),
    **dict.fromkeys(("aten::where.self", "aten::threshold_backward", "aten::clone", "aten::copy_"), _always),
    "aten::_to_copy": _plain,
}

_OTHERS = frozenset(
    f"aten::{name}"
    for name in (
        *("_softmax", "_log_softmax", "native_layer_norm", "var_mean.correction", "var.correction", "std.correction"),
        *("sum", "sum.dim_IntList", "mean", "mean.dim", "amax", "amin", "linalg_vector_norm", "logsumexp"),
        *("_softmax_backward_data", "_log_softmax_backward_data", "native_layer_norm_backward", "gelu_backward"),
        *("tanh_backward", "sigmoid_backward", "silu_backward", "threshold_backward", "softplus_backward"),
        *("hardtanh_backward", "leaky_relu_backward", "elu_backward", "hardswish_backward", "mse_loss"),
        *("cat", "clone", "copy_", "_to_copy", "fill_.Scalar", "zero_", "where.self", "gelu", "silu", "silu_"),
    )
)


def may_be_lowered(op: Op, slots: list[Slot], exact: bool) -> bool:
    """Whether it may be in a cluster, as far as it can be told from the op alone."""
    if not _is_usual(op, slots, _EXACT_DTYPES if exact else _DTYPES):
        return False
    if exact:
        return op.name in _EXACT and _EXACT[op.name](op)
    return op.name in _OTHERS or _is_pointwise(op.name)


def _is_usual(op: Op, slots: list[Slot], dtypes: tuple[str, ...]) -> bool:
    if not op.results or not all(isinstance(value, Ref) or value is None for value in op.results):
        return False
    refs = [value for value in _leaves([*op.args, *op.results]) if isinstance(value, Ref)]
    if not all(_is_plain_value(value) for value in _leaves(op.args)):
        return False
    return all(_is_usual_slot(slots[ref.slot], dtypes) for ref in refs)


def _is_usual_slot(slot: Slot, dtypes: tuple[str, ...]) -> bool:
    if slot.is_number:
        return isinstance(slot.number, bool | int | float)
    dense = slot.layout == "strided" and slot.device == "cpu" and not slot.conjugate and not slot.negative
    return dense and slot.dtype in dtypes and 0 not in slot.sizes and all(stride >= 0 for stride in slot.strides)


def _is_plain_value(value: Any) -> bool:
    name = type(value).__name__
    return value is None or isinstance(value, bool | int | float | str | Ref) or name in ("Named", "Device")


def _leaves(values: list[Any]) -> list[Any]:
    return [part for value in values for part in (_leaves(value) if isinstance(value, list) else [value])]


@cache
def _is_pointwise(name: str) -> bool:
    overload = overload_of(name)
    if overload is None or torch.Tag.nondeterministic_seeded in overload.tags:
        return False
    if torch.Tag.pointwise in overload.tags:
        return True
    # Torch has the tag on the functional op alone.
    stem, dot, rest = name.partition(".")
    return stem.endswith("_") and _is_pointwise(f"{stem[:-1]}{dot}{rest}")


@cache
def overload_of(name: str) -> Any:
    """The op by its name, or None."""
    space, _, rest = name.partition("::")
    stem, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), stem), overload or "default")
    except AttributeError:
        return None
