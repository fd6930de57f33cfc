"""The arguments of a replay, held against those of the trace."""

from __future__ import annotations

from typing import Any

import torch

from torchreel.errors import ReplayError
from torchreel.program.model import Program, Slot
from torchreel.tape.structure import Structure


class Arguments:
    """Knows what a tape takes."""

    def __init__(self, program: Program, traced: Structure | None, tensors: dict[int, torch.Tensor]) -> None:
        self._program = program
        self._constants = None if traced is None else traced.constants()
        self._written = _written_inputs(program)
        self._names = [each.name for each in program.inputs]
        self._slots = [each.slot for each in program.inputs]

    def match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """The input tensors in the order of the program."""
        given = Structure((args, kwargs))
        if len(given.tensors) != len(self._slots) or (
            self._constants is not None and len(given.constants()) != len(self._constants)
        ):
            raise ReplayError(
                f"The tape takes {len(self._slots)} tensors ({', '.join(self._names) or 'none'}), and "
                f"{len(given.tensors)} were given, or in another structure: call replay() as the function was called."
            )
        self._check_constants(given)
        inputs = [self._fit(place, tensor) for place, tensor in enumerate(given.tensors)]
        self._check_aliases(inputs)
        return inputs

    def _check_constants(self, given: Structure) -> None:
        if self._constants is None:
            return
        for (name, was), (_, now) in zip(self._constants, given.constants(), strict=True):
            if was is not now and not _same(was, now):
                raise ReplayError(
                    f"Argument {_readable(name)} was {was!r} when the tape was made, and is {now!r} now: what is no "
                    "tensor is part of the tape. Trace it again."
                )

    def _fit(self, place: int, tensor: torch.Tensor) -> torch.Tensor:
        slot = self._program.slots[self._slots[place]]
        found = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), str(tensor.device))
        if slot.layout == "strided" and found != (slot.dtype, slot.sizes, slot.device):
            raise ReplayError(
                f"Input {self._names[place]} was {_text(slot.dtype, slot.sizes, slot.device)} when the tape was made, "
                f"and is {_text(*found)} now: trace it again for another shape, dtype or device."
            )
        if slot.layout != "strided" or tensor.layout != torch.strided or tensor.stride() == slot.strides:
            return tensor
        return self._with_strides(place, tensor, slot)

    def _with_strides(self, place: int, tensor: torch.Tensor, slot: Slot) -> torch.Tensor:
        if place in self._written:
            raise ReplayError(
                f"Input {self._names[place]} had strides {slot.strides} when the tape was made, and has "
                f"{tensor.stride()} now; the tape writes to it, so it cannot be copied: give one with the same strides."
            )
        with torch.no_grad():
            return torch.empty_strided(slot.sizes, slot.strides, dtype=tensor.dtype).copy_(tensor)

    def _check_aliases(self, inputs: list[torch.Tensor]) -> None:
        """Which inputs share memory is part of the program."""
        slots = [self._program.slots[slot] for slot in self._slots]
        for first in range(len(inputs)):
            for second in range(first + 1, len(inputs)):
                was = slots[first].storage == slots[second].storage
                now = _shares(inputs[first], inputs[second])
                written = first in self._written or second in self._written
                apart = was and (
                    not now or _distance(inputs[first], inputs[second]) != slots[second].offset - slots[first].offset
                )
                if apart or (now and not was and written):
                    raise ReplayError(
                        f"Inputs {self._names[first]} and {self._names[second]} "
                        f"{'shared' if was else 'did not share'} memory when the tape was made, and now they do "
                        f"{'' if now else 'not'}: trace it again."
                    )


def _written_inputs(program: Program) -> set[int]:
    """Places of the inputs whose storage is written, by an op or after the last one."""
    storages = {program.slots[binding.owner].storage for binding in program.bindings if binding.kind == "copy"}
    for op in program.ops:
        schema = program.schemas.get(op.name, "")
        if "!" not in schema:
            continue
        for value in op.args:
            for part in value if isinstance(value, list) else [value]:
                slot = getattr(part, "slot", None)
                if slot is not None:
                    storages.add(program.slots[slot].storage)
    return {place for place, each in enumerate(program.inputs) if program.slots[each.slot].storage in storages}


def _same(was: Any, now: Any) -> bool:
    try:
        return type(was) is type(now) and bool(was == now)
    except Exception:  # of a class of the user's
        return False


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout != torch.strided or b.layout != torch.strided:
        return a is b
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


def _distance(a: torch.Tensor, b: torch.Tensor) -> int:
    return int(b.storage_offset()) - int(a.storage_offset())


def _text(dtype: str, sizes: tuple[int, ...], device: str) -> str:
    return f"{dtype} {list(sizes)} on {device}"


def _readable(name: str) -> str:
    kind, _, path = name.partition(".")
    return path if kind == "1" else f"{path} (by position)"
