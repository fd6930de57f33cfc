"""What an op was given and gave, in one line for people: `model.0.weight: float32[32, 16], %7: float32[8, 32], 1`."""

from __future__ import annotations

from collections.abc import Iterable

from torchreel.program.model import Formula, Generator, Object, Program, Ref, StorageOf, Value
from torchreel.program.text.literals import plain


def values_text(program: Program, values: Iterable[Value]) -> str:
    """Arguments or results, with commas between them."""
    return ", ".join(_text(program, value) for value in values)


def _text(program: Program, value: Value) -> str:
    if isinstance(value, list):
        return f"[{values_text(program, value)}]"
    if isinstance(value, Ref):
        return _tensor_text(program, value.slot)
    if isinstance(value, StorageOf):
        return f"storage of {_tensor_text(program, value.slot)}"
    if isinstance(value, Formula):
        return plain(value.value)
    if isinstance(value, Generator):
        return f"generator {value.index}"
    if isinstance(value, Object):
        return program.objects[value.index] if value.index < len(program.objects) else "object"
    return plain(value)


def _tensor_text(program: Program, index: int) -> str:
    slot = program.slots[index]
    if slot.is_number and slot.number is not None:
        return plain(slot.number)
    return f"{slot.name or f'%{index}'}: {slot.dtype}{list(slot.sizes)}"
