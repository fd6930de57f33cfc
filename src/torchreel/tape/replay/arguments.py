"""The arguments of a replay, held against those of the trace."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.autograd import forward_ad

from torchreel._torch.autograd import forward_level
from torchreel._torch.tensors import storage_address
from torchreel.errors import GuardError, ReplayError
from torchreel.program.model import Program, Ref, Slot, StorageOf
from torchreel.program.query.writes import written_storages
from torchreel.tape.replay.fitting import MisfitError, fit
from torchreel.tape.replay.memory import Memory, bits_in_words, has_bits, has_bits_of
from torchreel.tape.structure import Structure, TensorLeaf

# What Python may ask of an input.
_LAYOUT, _GRADIENT, _ADDRESS = 1, 2, 4
_LINE = 64  # bytes that memory is aligned to
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Arguments:
    """Knows what a tape takes."""

    def __init__(self, program: Program, traced: Structure | None, asked: list[int] | None = None) -> None:
        """`asked`: for each input a mask of the questions that Python asked of it, other than for its values."""
        self._program = program
        self._traced = traced
        self._asked = asked or [0] * len(program.inputs)
        self._backward = any(op.backward for op in program.ops)
        self._written = _written_inputs(program)
        self._viewed, self._counted = _viewed_inputs(program), _counted_inputs(program)
        self._names = [each.name for each in program.inputs]
        self._slots = [each.slot for each in program.inputs]
        self._layouts = [_layout(program.slots[slot]) for slot in self._slots]
        storages = [program.slots[slot].storage for slot in self._slots]
        owners = {binding.owner for binding in program.bindings}
        self._graded = {index for index, slot in enumerate(self._slots) if slot in owners}
        self._shared = bool(self._written | self._graded) or len(set(storages)) < len(storages)

    def match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """The input tensors in the order of the program, as they are given."""
        tensors = self._tensors(args, kwargs)
        if len(tensors) != len(self._slots):
            raise self._other_structure(len(tensors))
        self._check_like(args, kwargs)
        self._check_gradients(tensors)
        for index, required in self._traced.like.turned if self._traced is not None and self._traced.like else ():
            tensors[index].requires_grad_(required)
        if forward_level() >= 0:
            self._check_tangents(tensors)
        if self._shared and len(tensors) > 1:
            self._check_aliases(tensors)
        return tensors

    def fitted(self, tensors: list[torch.Tensor], memory: Memory) -> list[torch.Tensor]:
        """The same, lying in memory as the views on the tape count."""
        return [
            tensor if wanted is not None and _lies_as(tensor, *wanted) else self._fit(index, tensor, memory)
            for index, (tensor, wanted) in enumerate(zip(tensors, self._layouts, strict=True))
        ]

    def _tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        if self._traced is None:
            return Structure((args, self._in_order(kwargs))).tensors
        try:
            return fit(self._traced.shape, (args, kwargs))
        except MisfitError as misfit:
            if isinstance(misfit.was, _PLAIN) and isinstance(misfit.now, _PLAIN):
                raise GuardError(
                    f"Argument {_readable(misfit.path)} was {misfit.was!r} when the tape was made, and is "
                    f"{misfit.now!r} now: what is no tensor is part of the tape. Trace it again."
                ) from None
            if not isinstance(misfit.was, (TensorLeaf, tuple, list, dict)):
                self._check_like(args, kwargs)
            raise self._other_structure(len(Structure((args, kwargs)).tensors)) from None

    def _check_like(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """All that is no value of a tensor is as it was."""
        like = self._traced.like if self._traced is not None else None
        changed = like.difference(args, kwargs) if like is not None else None
        if changed is None:
            return
        path, was, now = changed
        raise GuardError(
            f"Argument {_readable(path)} was {_described(was)} when the tape was made, and is {_described(now)} now: "
            "what is no value of a tensor is part of the tape. Trace it again."
        )

    def _check_gradients(self, tensors: list[torch.Tensor]) -> None:
        """An input that requires a gradient gets one where the function runs backward, or may be treated otherwise."""
        was = self._traced.like.gradients if self._traced is not None and self._traced.like is not None else []
        for index, (tensor, (required, leaf)) in enumerate(zip(tensors, was, strict=False)):
            if self._asked[index] & _ADDRESS:
                raise GuardError(
                    f"The function asked for the address of input {self._names[index]}, with data_ptr(), which is "
                    "another at each call: do not ask for it in what is traced."
                )
            if tensor.requires_grad is not required and (self._backward or self._asked[index] & _GRADIENT):
                raise GuardError(
                    f"Input {self._names[index]} {'required' if required else 'did not require'} a gradient when the "
                    f"tape was made, and {'does not' if required else 'does'} now: give one that is like it, or trace "
                    "it again."
                )
            if self._backward and tensor.requires_grad and not (leaf and tensor.is_leaf):
                raise GuardError(
                    f"Input {self._names[index]} was computed from other tensors that require gradients, so the "
                    "backward of the function goes beyond it, to what is not on the tape: give a tensor of its own, "
                    "with detach().requires_grad_(), and trace it again."
                )

    def _check_tangents(self, tensors: list[torch.Tensor]) -> None:
        for name, tensor in zip(self._names, tensors, strict=True):
            if forward_ad.unpack_dual(tensor).tangent is not None:
                raise GuardError(
                    f"Input {name} has a tangent of forward-mode AD, which a replay would lose: call the function "
                    "itself, or trace one that makes the dual tensor and unpacks its result."
                )

    def _in_order(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of a loaded tape, in the order of the names that its program knows."""
        keys = self._program.arguments.parts[1].keys if len(self._program.arguments.parts) == 2 else []
        return {key: kwargs[key] for key in keys} if set(keys) == set(kwargs) else kwargs

    def _other_structure(self, given: int) -> ReplayError:
        return ReplayError(
            f"The tape takes {len(self._slots)} tensors ({', '.join(self._names) or 'none'}), and {given} were given, "
            "or in another structure: call replay() as the function was called."
        )

    def _fit(self, index: int, tensor: torch.Tensor, memory: Memory) -> torch.Tensor:
        slot = self._program.slots[self._slots[index]]
        found, wanted = _kind(tensor), (slot.dtype, slot.sizes, slot.device, slot.layout)
        if found != wanted:
            raise ReplayError(
                f"Input {self._names[index]} was {_text(*wanted)} when the tape was made, and is {_text(*found)} now: "
                "trace it again for another shape, dtype, device or layout."
            )
        if slot.layout != "strided":
            return tensor
        self._check_strides(index, tensor, slot)
        if not has_bits_of(tensor, slot):
            tensor = self._resolved(index, tensor, slot)
        if tensor.storage_offset() == slot.offset or index not in self._viewed:
            return tensor
        self._check_offset(index, tensor, slot)
        first = (tensor.storage_offset() - slot.offset) * tensor.element_size()
        if first >= 0:
            return _lying_in(tensor.untyped_storage()[first:], tensor, slot)
        if index in self._written or memory.shares_state(tensor):
            raise self._elsewhere(index, tensor, slot, "the tape writes to it, so it cannot be copied")
        return _copied(tensor, slot)

    def _check_strides(self, index: int, tensor: torch.Tensor, slot: Slot) -> None:
        if self._asked[index] & _LAYOUT and (tensor.stride(), tensor.storage_offset()) != (slot.strides, slot.offset):
            raise self._elsewhere(index, tensor, slot, "the function asked for them in Python")
        if tensor.stride() != slot.strides:
            raise self._elsewhere(
                index, tensor, slot, "kernels may go another way by them, and add and draw numbers in another order"
            )

    def _check_offset(self, index: int, tensor: torch.Tensor, slot: Slot) -> None:
        """Whether the views of the input count from where it begins, and from nowhere else."""
        if index in self._counted:
            raise self._elsewhere(index, tensor, slot, "the function counts from the beginning of its memory")
        if index in self._graded:
            raise self._elsewhere(index, tensor, slot, "the tape gives it a gradient, so it cannot be copied")

    def _resolved(self, index: int, tensor: torch.Tensor, slot: Slot) -> torch.Tensor:
        """The tensor without conjugate and negative bits."""
        if has_bits(slot) or index in self._written | self._graded:
            raise GuardError(
                f"Input {self._names[index]} is {bits_in_words(tensor.is_conj(), tensor.is_neg())} now, and was "
                f"{bits_in_words(slot.conjugate, slot.negative)} when the tape was made: give one that is like it, or "
                "trace it again."
            )
        with torch.no_grad():
            resolved = tensor.detach().resolve_conj().resolve_neg()
        self._check_strides(index, resolved, slot)
        return resolved

    def _elsewhere(self, index: int, tensor: torch.Tensor, slot: Slot, why: str) -> GuardError:
        return GuardError(
            f"Input {self._names[index]} had strides {slot.strides} and offset {slot.offset} when the tape was made, "
            f"and has {tensor.stride()} and {tensor.storage_offset()} now, and {why}: give one with the same strides "
            "and offset, or trace it again."
        )

    def _check_aliases(self, inputs: list[torch.Tensor]) -> None:
        """Which inputs share memory is part of the program."""
        slots = [self._program.slots[slot] for slot in self._slots]
        for first in range(len(inputs)):
            for second in range(first + 1, len(inputs)):
                was = slots[first].storage == slots[second].storage
                now = _shares(inputs[first], inputs[second])
                written = {first, second} & (self._written | self._graded)
                apart = was and (
                    not now or _distance(inputs[first], inputs[second]) != slots[second].offset - slots[first].offset
                )
                if apart or (now and not was and written):
                    raise ReplayError(
                        f"Inputs {self._names[first]} and {self._names[second]} "
                        f"{'shared' if was else 'did not share'} memory when the tape was made, and now they "
                        f"{'do' if now else 'do not, or at other places'}: trace it again."
                    )


def _lying_in(storage: torch.UntypedStorage, tensor: torch.Tensor, slot: Slot) -> torch.Tensor:
    with torch.no_grad():
        lying = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return lying.set_(storage, slot.offset, slot.sizes, slot.strides)


def _copied(tensor: torch.Tensor, slot: Slot) -> torch.Tensor:
    """A copy with the offset that views on the tape count from, and with the alignment of the given tensor."""
    size, last = (
        tensor.element_size(),
        1 + sum((length - 1) * stride for length, stride in zip(slot.sizes, slot.strides, strict=True)),
    )
    with torch.no_grad():
        source = tensor.detach().as_strided((last,), (1,), tensor.storage_offset())
        whole = torch.empty(slot.bytes + _LINE, dtype=torch.uint8, device=tensor.device)
        shift = (tensor.data_ptr() - slot.offset * size - whole.data_ptr()) % _LINE
        copy = _lying_in(whole.untyped_storage()[shift:], tensor, slot)
        copy.as_strided((last,), (1,), slot.offset).copy_(source)
    return copy


def _viewed_inputs(program: Program) -> set[int]:
    """Places of the inputs that the program has other views of."""
    seen = Counter(slot.storage for slot in program.slots)
    return {index for index, each in enumerate(program.inputs) if seen[program.slots[each.slot].storage] > 1}


def _counted_inputs(program: Program) -> set[int]:
    """Places of the inputs whose memory is reached from its beginning, or beyond what is given of it."""
    storages: set[int] = set()
    for op in program.ops:
        first, counts = op.args[0] if op.args else None, op.name.startswith("aten::as_strided") and not op.inserted
        if counts and isinstance(first, Ref) and len(op.args) > 3 and op.args[-1] is not None:
            storages.add(program.slots[first.slot].storage)
        storages.update(program.slots[value.slot].storage for value in op.args if isinstance(value, StorageOf))
    for each in program.inputs:
        if program.slots[each.slot].layout != "strided":
            continue
        first, last = _extent(program.slots[each.slot])
        own = program.slots[each.slot].storage
        for slot in program.slots:
            if (
                slot.storage == own
                and slot.layout == "strided"
                and (_extent(slot)[0] < first or _extent(slot)[1] > last)
            ):
                storages.add(own)
    return {index for index, each in enumerate(program.inputs) if program.slots[each.slot].storage in storages}


def _extent(slot: Slot) -> tuple[int, int]:
    """The first byte of the storage that it has, and the one after its last."""
    size = getattr(torch, slot.dtype).itemsize
    if 0 in slot.sizes:
        return slot.offset * size, slot.offset * size
    last = sum((length - 1) * stride for length, stride in zip(slot.sizes, slot.strides, strict=True))
    return slot.offset * size, (slot.offset + last + 1) * size


def _written_inputs(program: Program) -> set[int]:
    """Places of the inputs whose storage is written, by an op or after the last one."""
    storages = written_storages(program)
    storages |= {program.slots[binding.owner].storage for binding in program.bindings if binding.kind == "copy"}
    return {index for index, each in enumerate(program.inputs) if program.slots[each.slot].storage in storages}


_Layout = tuple[torch.dtype, torch.Size, torch.device, tuple[int, ...], int]


def _layout(slot: Slot) -> _Layout | None:
    """What an input is compared with at each replay; None for one that takes a closer look."""
    if slot.layout != "strided" or has_bits(slot):
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
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _kind(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], str, str]:
    layout = str(tensor.layout).removeprefix("torch.")
    sizes = () if tensor.is_nested else tuple(tensor.shape)
    return str(tensor.dtype).removeprefix("torch."), sizes, str(tensor.device), layout


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout != torch.strided or b.layout != torch.strided:
        return a is b
    return bool(storage_address(a.untyped_storage()) == storage_address(b.untyped_storage()))


def _distance(a: torch.Tensor, b: torch.Tensor) -> int:
    return int(b.storage_offset()) - int(a.storage_offset())


def _text(dtype: str, sizes: tuple[int, ...], device: str, layout: str) -> str:
    return f"{dtype} {list(sizes)} on {device}" + (f" ({layout})" if layout != "strided" else "")


def _described(part: Any) -> str:
    """A part of a likeness in words."""
    match part:
        case (type() as cls, str() as text) if cls in (float, complex, range, slice):
            return text
        case (type() as cls, value) if cls in (bool, int, str, bytes, type(None), torch.dtype, torch.device):
            return repr(value)
        case (type() as cls, str() as text) if issubclass(cls, torch.Tensor):
            return f"a {cls.__name__} {text}"
        case (type() as cls, *rest):
            return f"a {cls.__name__}: {', '.join(repr(each)[:40] for each in rest)}"
        case str():
            return part
    return repr(part)


def _readable(name: str) -> str:
    kind, _, path = name.removeprefix(".").partition(".")
    if not path:
        return "by name" if kind == "1" else "by position"
    return path if kind == "1" else f"{path} (by position)"
