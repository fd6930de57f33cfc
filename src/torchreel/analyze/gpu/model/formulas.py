"""Floating point operations and bytes of an op, from the shapes of its inputs: matmul, convolution, attention.

A multiplication with an addition counts as two. Attention counts all scores, also those that a mask leaves out.
Bytes are those of all inputs and of the output, each once: what has to pass through memory at least.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

Shape = tuple[int, ...]

_DTYPES = {
    "float": ("float32", 4),
    "c10::BFloat16": ("bfloat16", 2),
    "c10::Half": ("float16", 2),
    "double": ("float64", 8),
    "c10::Float8_e4m3fn": ("float8", 1),
    "c10::Float8_e5m2": ("float8", 1),
    "c10::Float8_e4m3fnuz": ("float8", 1),
    "c10::Float8_e5m2fnuz": ("float8", 1),
    "long int": ("int64", 8),
    "int": ("int32", 4),
    "short int": ("int16", 2),
    "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1),
    "bool": ("bool", 1),
}


@dataclass(frozen=True)
class Work:
    """What one call of an op does; the bytes are None where a dtype is not known."""

    flops: int
    bytes: int | None
    dtype: str


@dataclass(frozen=True)
class _Arguments:
    """The inputs of a call: shapes of tensors, () for what is none; numbers and lists as text."""

    shapes: list[Shape]
    scalars: list[str]

    def numbers(self, place: int) -> list[int]:
        return [int(number) for number in re.findall(r"-?\d+", self.scalars[place])]


_Formula = Callable[[_Arguments], tuple[int, Shape]]  # FLOP, and the shape of the output


def _product(a: Shape, b: Shape) -> tuple[int, Shape]:
    """torch.matmul of two shapes."""
    rows, columns = a[-2] if len(a) > 1 else 1, b[-1] if len(b) > 1 else 1
    inner = b[-2] if len(b) > 1 else b[-1]
    if a[-1] != inner:
        raise ValueError
    batch = _broadcast(a[:-2], b[:-2])
    return 2 * math.prod(batch) * rows * columns * inner, (*batch, rows, columns)


def _broadcast(a: Shape, b: Shape) -> Shape:
    size = max(len(a), len(b))
    one, other = ((1,) * (size - len(shape)) + shape for shape in (a, b))
    return tuple(max(pair) for pair in zip(one, other, strict=True))


def _linear(given: _Arguments) -> tuple[int, Shape]:
    return _product(given.shapes[0], given.shapes[1][::-1])


def _convolution(
    given: _Arguments, stride: int = 3, padding: int = 4, dilation: int = 5, transposed: int = -1
) -> tuple[int, Shape]:
    inputs, weight = given.shapes[:2]
    if transposed >= 0 and given.scalars[transposed] in ("True", "true", "1"):
        return 2 * math.prod(inputs) * math.prod(weight[1:]), inputs
    steps, pads, gaps = (given.numbers(place) for place in (stride, padding, dilation))
    sizes = [
        (size + 2 * _at(pads, n) - _at(gaps, n) * (kernel - 1) - 1) // _at(steps, n) + 1
        for n, (size, kernel) in enumerate(zip(inputs[2:], weight[2:], strict=True))
    ]
    output = (inputs[0], weight[0], *sizes)
    return 2 * math.prod(output) * math.prod(weight[1:]), output


def _at(values: list[int], place: int) -> int:
    return values[place] if place < len(values) else values[0]


def _convolution_backward(given: _Arguments) -> tuple[int, Shape]:
    gradient, inputs, weight = given.shapes[:3]
    wanted = re.findall(r"True|true|False|false|[01]", given.scalars[10])[:2]
    passes = sum(answer in ("True", "true", "1") for answer in wanted)
    transposed = given.scalars[7] in ("True", "true", "1")
    each = 2 * (math.prod(inputs) if transposed else math.prod(gradient)) * math.prod(weight[1:])
    return each * passes, inputs


def _attention(
    given: _Arguments, first: int = 0, heads_first: bool = True, backward: bool = False
) -> tuple[int, Shape]:
    query, key, value = given.shapes[first : first + 3]
    if len(query) < 3 or len(query) != len(key) != len(value):
        raise ValueError
    sequence = -2 if heads_first else -3
    scores = math.prod(query[:-1]) * key[sequence]
    inner, outer = query[-1], value[-1]
    return 2 * scores * (3 * inner + 2 * outer if backward else inner + outer), (*query[:-1], outer)


_FORMULAS: dict[str, _Formula] = {
    "aten::mm": lambda given: _product(given.shapes[0], given.shapes[1]),
    "aten::matmul": lambda given: _product(given.shapes[0], given.shapes[1]),
    "aten::bmm": lambda given: _product(given.shapes[0], given.shapes[1]),
    "aten::_scaled_mm": lambda given: _product(given.shapes[0], given.shapes[1]),
    "aten::_int_mm": lambda given: _product(given.shapes[0], given.shapes[1]),
    "aten::addmm": lambda given: _product(given.shapes[1], given.shapes[2]),
    "aten::baddbmm": lambda given: _product(given.shapes[1], given.shapes[2]),
    "aten::_addmm_activation": lambda given: _product(given.shapes[1], given.shapes[2]),
    "aten::linear": _linear,
    "aten::conv1d": _convolution,
    "aten::conv2d": _convolution,
    "aten::conv3d": _convolution,
    "aten::convolution": lambda given: _convolution(given, transposed=6),
    "aten::_convolution": lambda given: _convolution(given, transposed=6),
    "aten::cudnn_convolution": lambda given: _convolution(given, stride=3, padding=2, dilation=4),
    "aten::miopen_convolution": lambda given: _convolution(given, stride=4, padding=3, dilation=5),
    "aten::convolution_backward": _convolution_backward,
    "aten::scaled_dot_product_attention": _attention,
    "aten::_scaled_dot_product_flash_attention": _attention,
    "aten::_scaled_dot_product_efficient_attention": _attention,
    "aten::_scaled_dot_product_cudnn_attention": _attention,
    "aten::_flash_attention_forward": lambda given: _attention(given, heads_first=False),
    "flash_attn::_flash_attn_forward": lambda given: _attention(given, heads_first=False),
    "aten::_scaled_dot_product_flash_attention_backward": lambda given: _attention(given, 1, backward=True),
    "aten::_scaled_dot_product_efficient_attention_backward": lambda given: _attention(given, 1, backward=True),
    "aten::_scaled_dot_product_cudnn_attention_backward": lambda given: _attention(given, 1, backward=True),
}
NAMES = frozenset(_FORMULAS)


def work_of(name: str, dims: str | None, dtypes: str | None, scalars: str | None) -> Work | None:
    """What a call does, from the columns of `inputs`; None where no formula fits."""
    formula = _FORMULAS.get(name)
    if formula is None:
        return None
    try:
        shapes = [_shape(each) for each in json.loads(dims or "[]")]
        kinds = json.loads(dtypes or "[]")
        flops, output = formula(_Arguments(shapes, [str(text) for text in json.loads(scalars or "[]")]))
        dtype, size = next(_DTYPES[kind] for kind, shape in zip(kinds, shapes, strict=False) if shape)
    except (ValueError, TypeError, IndexError, KeyError, StopIteration, ZeroDivisionError, RecursionError):
        return None
    known = [(shape, _DTYPES.get(kind)) for kind, shape in zip(kinds, shapes, strict=False) if shape]
    if flops < 0 or flops >= 2**62 or any(each is None for _, each in known):
        return None
    read = sum(math.prod(shape) * each[1] for shape, each in known if each is not None)
    given_output = name in ("aten::mm", "aten::bmm") and len(known) > 2  # of an overload with out=
    return Work(flops, read + (0 if given_output else math.prod(output) * size), dtype)


def _shape(given: object) -> Shape:
    """The sizes of a tensor; () for what is none, and for a list of tensors."""
    if isinstance(given, list) and all(type(size) is int and 0 <= size < 2**40 for size in given):
        return tuple(given)
    return ()
