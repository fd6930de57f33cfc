"""Tensors that are a part of the program, as Python expressions that make them."""

from __future__ import annotations

import base64
import math
import struct
import zlib

from torchreel.program.model import Slot
from torchreel.program.text.literals import plain, quoted, word

# What a person still reads; all else is packed.
_MOST_NUMBERS = 64
_LETTERS_OF_STRUCT = {
    "bool": "?",
    "uint8": "B",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}


def expression(slot: Slot, content: bytes) -> str:
    """The tensor with all its geometry."""
    if not content:
        return f"torch.empty_strided({slot.sizes}, {slot.strides}, dtype=torch.{word(slot.dtype)}{_device(slot)})"
    contiguous = slot.offset == 0 and slot.strides == contiguous_strides(slot.sizes)
    numbers = _numbers(slot.dtype, content) if contiguous else None
    if numbers is not None and len(numbers) == math.prod(slot.sizes):
        return f"torch.tensor({_nested(numbers, slot.sizes)}, dtype=torch.{word(slot.dtype)}{_device(slot)})"
    where = f"torch.{word(slot.dtype)}, {slot.sizes}, {slot.strides}"
    return f"constant_of({quoted(packed(content))}, {where}, {slot.offset}, {slot.bytes}{_device(slot)})"


def packed(content: bytes) -> str:
    """Bytes as letters that may stand between quotes; `unpacked` in the emitted program gives them back."""
    return base64.b85encode(zlib.compress(content, 9)).decode()


def contiguous_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Those of a tensor whose elements lie one behind the other."""
    strides = []
    step = 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _device(slot: Slot) -> str:
    return "" if slot.device == "cpu" else f", device={quoted(slot.device)}"


def _numbers(dtype: str, content: bytes) -> list[int] | list[float] | None:
    """The elements, if there are few and Python's numbers hold each exactly."""
    letter = _LETTERS_OF_STRUCT.get(dtype)
    if letter is None or len(content) > _MOST_NUMBERS * struct.calcsize(letter):
        return None
    numbers = [number for (number,) in struct.iter_unpack(f"<{letter}", content)]
    # The bits of a NaN are lost on the way through a literal.
    return None if any(number != number for number in numbers) else numbers


def _nested(numbers: list[int] | list[float], sizes: tuple[int, ...]) -> str:
    if not sizes:
        return plain(numbers[0])
    rows = [plain(number) for number in numbers]
    for size in reversed(sizes):
        rows = [f"[{', '.join(rows[at : at + size])}]" for at in range(0, len(rows), size)]
    return rows[0]
