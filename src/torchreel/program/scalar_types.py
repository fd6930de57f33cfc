"""The numbers that torch itself has for its dtypes, layouts and memory formats (c10::ScalarType and others)."""

from __future__ import annotations

_DTYPES = (
    *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"),
    *("complex32", "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16"),
    *("quint4x2", "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16"),
    *("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16", "uint32", "uint64"),
    *(f"uint{bits}" for bits in range(1, 8)),
    *(f"int{bits}" for bits in range(1, 8)),
    *("float8_e8m0fnu", "float4_e2m1fn_x2"),
)
DTYPE_NUMBERS = {name: number for number, name in enumerate(_DTYPES)}
LAYOUT_NUMBERS = {
    name: number
    for number, name in enumerate(
        ("strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
    )
}
MEMORY_FORMAT_NUMBERS = {
    name: number
    for number, name in enumerate(("contiguous_format", "preserve_format", "channels_last", "channels_last_3d"))
}
NUMBERS = {"dtype": DTYPE_NUMBERS, "layout": LAYOUT_NUMBERS, "memory_format": MEMORY_FORMAT_NUMBERS}
