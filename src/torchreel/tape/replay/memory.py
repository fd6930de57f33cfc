"""How the tensors of a tape lie in memory, which its views count from, and which of them are one memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from torchreel._torch.dispatch import disable_torch_function_of_subclasses
from torchreel._torch.tensors import storage_address
from torchreel.errors import GuardError
from torchreel.program.model import Program, Slot

Tensors = Mapping[int, torch.Tensor]
_is_conj: Any = torch.Tensor.is_conj
_is_neg: Any = torch.Tensor.is_neg


class Memory:
    """Made of a program and its tensors; looked at before each replay."""

    def __init__(self, program: Program, tensors: Tensors, named: frozenset[int] = frozenset()) -> None:
        """`named`: slots of inputs that the function also has by a name of its own."""
        self._slots = program.slots
        self._inputs = list(dict.fromkeys(each.slot for each in program.inputs))
        self._state = {slot: tensor for slot, tensor in tensors.items() if self._is_state(slot)}
        self._traced = dict(tensors)
        seen = Counter(slot.storage for slot in program.slots if slot.layout == "strided")
        self._offsets = {slot: self._slots[slot].offset for slot in self._state if seen[self._slots[slot].storage] > 1}
        self._plain = [tensor for slot, tensor in self._state.items() if not has_bits(self._slots[slot])]
        self._bits = [slot for slot in self._state if has_bits(self._slots[slot])]
        self._tied = {slot: other for slot in self._inputs if (other := self._other(slot, named)) is not None}
        self._groups = [group for group in self._by_storage().values() if len(group) > 1]
        self._copied = {each.owner for each in program.bindings if each.kind == "copy"}
        self._graded = {each.owner for each in program.bindings if each.kind == "grad"}

    def _is_state(self, slot: int) -> bool:
        record = self._slots[slot]
        return record.layout == "strided" and not record.is_number and slot not in self._inputs

    def _by_storage(self) -> dict[int, list[int]]:
        groups: dict[int, list[int]] = {}
        for slot in self._state:
            groups.setdefault(self._slots[slot].storage, []).append(slot)
        return groups

    def _other(self, slot: int, named: frozenset[int]) -> int | None:
        """The slot of the state that an input shared memory with in the trace; its own if that has a name."""
        if slot in named and slot in self._traced:
            return slot
        if self._slots[slot].layout != "strided":
            return None
        return next((other for other in self._state if self._slots[other].storage == self._slots[slot].storage), None)

    def check(self, inputs: Tensors, gradients: Tensors) -> None:
        """Raises a GuardError where a replay would read or write other memory than a call.

        `gradients` are those of now, by the slots of those that the tape knows.
        """
        with disable_torch_function_of_subclasses():
            self._check_bits(gradients)
            for slot, offset in self._offsets.items():
                tensor = gradients.get(slot, self._state[slot])
                if tensor.layout is torch.strided and tensor.storage_offset() != offset:
                    raise self._moved(slot, offset, int(tensor.storage_offset()))
            for group in self._groups:
                self._check_together(group, gradients)
            for slot, other in self._tied.items():
                self._check_tied(slot, other, inputs)
            if self._copied:
                self._check_apart(inputs, gradients)
            if self._graded:
                self._check_gradients(inputs)

    def _check_bits(self, gradients: Tensors) -> None:
        if not any(map(_is_conj, self._plain)) and not any(map(_is_neg, self._plain)):
            if not self._bits and not gradients:
                return
            found: Any = [*((slot, self._state[slot]) for slot in self._bits), *gradients.items()]
        else:
            found = self._state.items()
        for slot, tensor in found:
            now = gradients.get(slot, tensor)
            if now.layout is torch.strided and not has_bits_of(now, self._slots[slot]):
                raise GuardError(
                    f"{self._name(slot)} is {bits_in_words(now.is_conj(), now.is_neg())} now, and was "
                    f"{bits_in_words(self._slots[slot].conjugate, self._slots[slot].negative)} when the tape was made: "
                    "give it the values themselves, with resolve_conj().resolve_neg(), or trace again."
                )

    def _check_together(self, group: list[int], gradients: Tensors) -> None:
        """Tensors that shared memory must still share it: the tape makes views of one from the other."""
        first, *others = (gradients.get(slot, self._state[slot]) for slot in group)
        for slot, tensor in zip(group[1:], others, strict=True):
            if storage_of(tensor) != storage_of(first):
                raise GuardError(
                    f"{self._name(group[0])} and {self._name(slot)} shared memory when the tape was made, and now they "
                    "do not: trace again."
                )

    def _check_tied(self, slot: int, other: int, inputs: Tensors) -> None:
        given = inputs[slot]
        owner = self._traced[other] if other == slot else self._state[other]
        if given is owner and other == slot:
            return
        if storage_of(given) != storage_of(owner) or given.storage_offset() != self._slots[slot].offset:
            raise GuardError(
                f"Input {self._name(slot)} lay in memory that the function also has as {self._name(other)} when the "
                "tape was made, and now it is another tensor, or lies at another place: trace it again with an input "
                "that is no tensor of the function's own."
                if other != slot
                else f"Input {self._name(slot)} was a tensor that the function also has by a name of its own when the "
                "tape was made, and the tape cannot tell the two: trace it again with another tensor as input."
            )

    def _check_apart(self, inputs: Tensors, gradients: Tensors) -> None:
        """For a program without mutation: no other tensor shares the memory that it writes at its end."""
        everything = {**self._state, **gradients, **{slot: inputs[slot] for slot in self._inputs if slot in inputs}}
        storages = {slot: storage_of(tensor) for slot, tensor in everything.items()}
        for owner in self._copied & storages.keys():
            for slot, storage in storages.items():
                if storage == storages[owner] and self._slots[slot].storage != self._slots[owner].storage:
                    raise GuardError(
                        f"{self._name(owner)} and {self._name(slot)} share memory now, and did not when the tape was "
                        "made, and the tape, which is without mutation, writes to the one after it has read the "
                        "other: trace again."
                    )

    def _check_gradients(self, inputs: Tensors) -> None:
        """A tensor that is input and state at once gets the sum of two gradients, where the tape gives it two."""
        for slot, given in inputs.items():
            if not given.requires_grad or slot in self._tied:
                continue
            for other in self._graded:
                if other != slot and self._state.get(other) is given:
                    raise GuardError(
                        f"Input {self._name(slot)} is {self._name(other)} now, and was another tensor when the tape "
                        "was made, and both get gradients: trace again."
                    )

    def _moved(self, slot: int, was: int, now: int) -> GuardError:
        return GuardError(
            f"{self._name(slot)} began at element {was} of its memory when the tape was made, and begins at element "
            f"{now} of it now, and the tape has views of it: trace again."
        )

    def _name(self, slot: int) -> str:
        return self._slots[slot].name or f"the tensor of slot {slot}"

    def shares_state(self, tensor: torch.Tensor) -> bool:
        """Whether it lies in memory of the state."""
        storage = storage_of(tensor)
        return any(storage_of(other) == storage for other in self._state.values())


def has_bits(slot: Slot) -> bool:
    return slot.conjugate or slot.negative


def has_bits_of(tensor: torch.Tensor, slot: Slot) -> bool:
    return tensor.is_conj() is slot.conjugate and tensor.is_neg() is slot.negative


def bits_in_words(conjugate: bool, negative: bool) -> str:
    words = [word for word, on in (("conjugated", conjugate), ("negated", negative)) if on]
    return f"{' and '.join(words)} when it is read (is_conj, is_neg)" if words else "not conjugated or negated so"


def storage_of(tensor: torch.Tensor) -> int:
    """Its storage. A tensor without one counts as a storage of its own."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return -id(tensor)
    return int(storage_address(tensor.untyped_storage()))


def inputs_with_names(inputs: list[torch.Tensor], own: Iterable[torch.Tensor]) -> frozenset[int]:
    """Places of inputs that are, or lie exactly as, tensors of the function's own or their gradients."""
    wanted: dict[Any, list[int]] = {}
    for index, tensor in enumerate(inputs):
        wanted.setdefault(_lie(tensor), []).append(index)
    found: set[int] = set()
    for tensor in own if wanted else ():
        found.update(wanted.get(_lie(tensor), ()))
        if tensor.is_leaf and tensor.grad is not None:
            found.update(wanted.get(_lie(tensor.grad), ()))
    return frozenset(found)


def _lie(tensor: torch.Tensor) -> Any:
    try:
        with disable_torch_function_of_subclasses():
            if tensor.layout is torch.strided and tensor.numel():
                return storage_of(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
    except RuntimeError:  # of a class that has no memory of its own
        pass
    return id(tensor)
