"""How many bytes an op was given: the sizes and the dtypes of its tensors, as a reel keeps them."""

from __future__ import annotations

import json
import math
from typing import Any

# As C++ names them, which is how torch's profiler does, and as torch itself does.
_BYTES = {
    "float": 4,
    "double": 8,
    "long int": 8,
    "int": 4,
    "short int": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
    "unsigned short": 2,
    "unsigned int": 4,
    "unsigned long": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::complex<c10::Half>": 4,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
    "c10::qint8": 1,
    "c10::quint8": 1,
    "c10::qint32": 4,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2fnuz": 1,
    "c10::Float8_e4m3fnuz": 1,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "complex64": 8,
    "complex128": 16,
}
_NO_TENSOR = ("", "Scalar", "ScalarList")


def input_bytes(dims: str | None, dtypes: str | None) -> int | None:
    """The bytes of all tensors of an argument list; None if it has none, or the reel does not say enough of one."""
    if dims is None or dtypes is None:
        return None
    total: int | None = None
    for sizes, dtype in zip(_items(dims), _items(dtypes), strict=False):
        if dtype in _NO_TENSOR:
            continue
        size = _BYTES.get(dtype)
        if size is None or not _is_sizes(sizes):  # such as a list of tensors, whose dtype is not kept
            return None
        total = (total or 0) + size * math.prod(sizes)
    return total


def _items(text: str) -> list[Any]:
    try:
        items = json.loads(text)
    except ValueError:
        return []
    return items if isinstance(items, list) else []


def _is_sizes(sizes: Any) -> bool:
    return isinstance(sizes, list) and all(isinstance(size, int) for size in sizes)
