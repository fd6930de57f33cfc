"""The arguments of a replay, held against those of the trace."""

from __future__ import annotations

from typing import Any

import torch

from torchreel.errors import ReplayError
from torchreel.program.model import Program, Slot
from torchreel.program.writes import written_storages
from torchreel.tape.fitting import MisfitError, fit
from torchreel.tape.structure import Structure

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Arguments:
    """Knows what a tape takes."""

    def __init__(self, program: Program, traced: Structure | None) -> None:
        self._program = program
        self._traced = traced
        self._written = _written_inputs(program)
        self._names = [each.name for each in program.inputs]
        self._slots = [each.slot for each in program.inputs]
        self._layouts = [_layout(program.slots[slot]) for slot in self._slots]
        storages = [program.slots[slot].storage for slot in self._slots]
        self._shared = bool(self._written) or len(set(storages)) < len(storages)

    def match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """The input tensors in the order of the program."""
        tensors = self._tensors(args, kwargs)
        if len(tensors) != len(self._slots):
            raise self._other_structure(len(tensors))
        inputs = [
            tensor if wanted is not None and _lies_as(tensor, *wanted) else self._fit(place, tensor)
            for place, (tensor, wanted) in enumerate(zip(tensors, self._layouts, strict=True))
        ]
        if self._shared and len(inputs) > 1:
            self._check_aliases(inputs)
        return inputs

    def _tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        if self._traced is None:
            return Structure((args, self._in_order(kwargs))).tensors
        try:
            return fit(self._traced.shape, (args, kwargs))
        except MisfitError as misfit:
            if isinstance(misfit.was, _PLAIN) and isinstance(misfit.now, _PLAIN):
                raise ReplayError(
                    f"Argument {_readable(misfit.path)} was {misfit.was!r} when the tape was made, and is "
                    f"{misfit.now!r} now: what is no tensor is part of the tape. Trace it again."
                ) from None
            raise self._other_structure(len(Structure((args, kwargs)).tensors)) from None

    def _in_order(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Of a loaded tape: by name, as far as the program knows the names."""
        keys = self._program.arguments.parts[1].keys if len(self._program.arguments.parts) == 2 else []
        return {key: kwargs[key] for key in keys} if set(keys) == set(kwargs) else kwargs

    def _other_structure(self, given: int) -> ReplayError:
        return ReplayError(
            f"The tape takes {len(self._slots)} tensors ({', '.join(self._names) or 'none'}), and {given} were given, "
            "or in another structure: call replay() as the function was called."
        )

    def _fit(self, place: int, tensor: torch.Tensor) -> torch.Tensor:
        slot = self._program.slots[self._slots[place]]
        found, wanted = _kind(tensor), (slot.dtype, slot.sizes, slot.device, slot.layout)
        if found != wanted:
            raise ReplayError(
                f"Input {self._names[place]} was {_text(*wanted)} when the tape was made, and is {_text(*found)} now: "
                "trace it again for another shape, dtype, device or layout."
            )
        if slot.layout != "strided" or (tensor.stride() == slot.strides and tensor.storage_offset() == slot.offset):
            return tensor
        return self._copied(place, tensor, slot)

    def _copied(self, place: int, tensor: torch.Tensor, slot: Slot) -> torch.Tensor:
        """With the strides and the offset that the views on the tape count from."""
        if place in self._written:
            raise ReplayError(
                f"Input {self._names[place]} had strides {slot.strides} and offset {slot.offset} when the tape was "
                f"made, and has {tensor.stride()} and {tensor.storage_offset()} now; the tape writes to it, so it "
                "cannot be copied: give one with the same strides and offset."
            )
        with torch.no_grad():
            whole = torch.empty(slot.bytes // tensor.element_size(), dtype=tensor.dtype, device=tensor.device)
            return whole.as_strided(slot.sizes, slot.strides, slot.offset).copy_(tensor)

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
    storages = written_storages(program)
    storages |= {program.slots[binding.owner].storage for binding in program.bindings if binding.kind == "copy"}
    return {place for place, each in enumerate(program.inputs) if program.slots[each.slot].storage in storages}


_Layout = tuple[torch.dtype, torch.Size, torch.device, tuple[int, ...], int]


def _layout(slot: Slot) -> _Layout | None:
    """What an input is compared with at each replay; None for a layout without strides."""
    if slot.layout != "strided":
        return None
    dtype: torch.dtype = getattr(torch, slot.dtype)
    return dtype, torch.Size(slot.sizes), torch.device(slot.device), slot.strides, slot.offset


def _lies_as(
    tensor: torch.Tensor, dtype: torch.dtype, sizes: torch.Size, device: torch.device, strides: Any, offset: int
) -> bool:
    return (
        tensor.dtype is dtype
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.shape == sizes
        and tensor.device == device
        and tensor.stride() == strides
        and tensor.storage_offset() == offset
    )


def _kind(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], str, str]:
    layout = str(tensor.layout).removeprefix("torch.")
    sizes = () if tensor.is_nested else tuple(tensor.shape)
    return str(tensor.dtype).removeprefix("torch."), sizes, str(tensor.device), layout


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout != torch.strided or b.layout != torch.strided:
        return a is b
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


def _distance(a: torch.Tensor, b: torch.Tensor) -> int:
    return int(b.storage_offset()) - int(a.storage_offset())


def _text(dtype: str, sizes: tuple[int, ...], device: str, layout: str) -> str:
    return f"{dtype} {list(sizes)} on {device}" + (f" ({layout})" if layout != "strided" else "")


def _readable(name: str) -> str:
    kind, _, path = name.removeprefix(".").partition(".")
    return path if kind == "1" else f"{path} (by position)"
