"""The tensors that a function differentiates by: whether they had gradients, and what becomes of those.

A call adds to a gradient that is there, and makes one where there is none. A tape does the one or the other, so before
a replay there must be gradients where there were some, unless the function clears them itself before it needs them.
Where the tape reads or adds to a gradient, it is the one that the tensor has now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from torchreel._torch.tensors import storage_address
from torchreel.errors import GuardError, ReplayError, TraceError
from torchreel.program.model import Binding, Program
from torchreel.tape.guards.changes import changed


@dataclass
class Leaf:
    """One leaf, by its slot."""

    slot: int
    had: bool  # a gradient, when the tape began
    has: bool  # one at its end
    clears: bool  # the function clears it before the first backward, and has not read it
    matters: bool  # whether the function can tell: it runs backward, or looks at this gradient
    gradients: list[int] = field(default_factory=list)  # slots of the one that it had, where the tape has that
    lay: Any = None  # where in its memory that one began, and with which strides


External = tuple[int, torch.Tensor]  # a tensor that no op made, with its slot


class Leaves:
    """Made when a tape begins, of the tensors that are known by then."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._began: dict[int, bool] = {}
        self._owners: dict[int, int] = {}  # of gradients, by their storages: whose they are
        self._storages: list[StorageWeakRef] = []  # so that no other storage gets the address of one of these
        self._sparse: list[tuple[torch.Tensor, int]] = []  # those that have no storage
        self._lay: dict[int, Any] = {}
        self.all: list[Leaf] = []
        self._given: list[tuple[int, int]] = []  # slots of tensors, and of gradients that Python gave them
        for tensor in tensors:
            if tensor.is_leaf and id(tensor) not in self._began:
                self._began[id(tensor)] = tensor.grad is not None
                self._note(tensor)

    def _note(self, tensor: torch.Tensor) -> None:
        gradient = tensor.grad
        if gradient is None:
            return
        self._lay[id(tensor)] = _lie(gradient)
        if gradient.layout == torch.strided:
            self._storages.append(StorageWeakRef(gradient.untyped_storage()))
            self._owners.setdefault(self._storages[-1].cdata, id(tensor))
        else:
            self._sparse.append((gradient, id(tensor)))

    def end(self, externals: list[External], cleared: dict[int, int], capture: Any) -> None:
        """`cleared`: tensors by id, and after how many records of the capture; those set in Python, it knows itself."""
        set_by_hand, backward, read = capture.gradients_set, capture.first_backward, capture.gradients_read
        cleared = {**set_by_hand, **cleared}
        gradients = self._gradients(externals, dict(capture.old_gradients()), set_by_hand)
        for slot, tensor in externals:
            if (tensor.requires_grad or self._began.get(id(tensor))) and tensor.is_leaf:
                own = gradients.get(id(tensor), [])
                had = self._began.get(id(tensor), bool(own))
                clears = not own and cleared.get(id(tensor), backward + 1) <= backward
                matters = backward < capture.op_count or id(tensor) in cleared or id(tensor) in read or bool(own)
                self.all.append(
                    Leaf(slot, had, tensor.grad is not None, clears, matters, own, self._lay.get(id(tensor)))
                )
                if id(tensor) in set_by_hand and tensor.grad is not None:
                    self._given.append((slot, capture.find(tensor.grad)))
        self._began, self._owners, self._storages, self._sparse, self._lay = {}, {}, [], [], {}

    def _gradients(
        self, externals: list[External], now: dict[int, int], set_by_hand: dict[int, int]
    ) -> dict[int, list[int]]:
        """The slots of gradients that tensors had when the tape began (or have `now`, and had then), by tensor id."""
        found: dict[int, list[int]] = {}
        for slot, tensor in externals if self._owners or self._sparse else ():
            owner = self._owner(tensor)
            if owner is not None and owner != id(tensor):
                found.setdefault(owner, []).append(slot)
        for slot, tensor in externals if now else ():
            if slot in now and id(tensor) not in set_by_hand and now[slot] not in found.get(id(tensor), ()):
                found.setdefault(id(tensor), []).append(now[slot])
        return found

    def _owner(self, tensor: torch.Tensor) -> int | None:
        """Whose gradient it is, or was when the tape began."""
        if tensor.layout != torch.strided:
            return next((owner for gradient, owner in self._sparse if gradient is tensor), None)
        return (
            self._owners.get(storage_address(tensor.untyped_storage()))
            if self._owners and not tensor.is_nested
            else None
        )

    def bindings(self, made: Sequence[tuple[int, int]]) -> Iterator[Binding]:
        """What the function leaves as gradients. `made`: slots of tensors, and of gradients that an op made."""
        known = {leaf.slot: leaf for leaf in self.all}
        owners = {owner for owner, _ in made}
        for owner, value in [*made, *(pair for pair in self._given if pair[0] not in owners)]:
            if value < 0:
                raise TraceError(
                    "The function gave a tensor a gradient that no op of the tape made or read, so a replay could not "
                    "do the same: copy the values into the gradient with copy_() instead."
                )
            leaf = known.get(owner)
            yield Binding("grad", owner, value, leaf is not None and (leaf.clears or leaf.had))
        for leaf in self.all:
            if not leaf.has and leaf.matters and (leaf.had or leaf.clears):
                yield Binding("grad", leaf.slot, -1, True)

    def renumbered(self, slots: dict[int, int]) -> Leaves:
        """The same for a program with other numbers for its slots."""
        other = Leaves(())
        for leaf in self.all:
            gradients = [slots[slot] for slot in leaf.gradients]
            other.all.append(replace(leaf, slot=slots[leaf.slot], gradients=gradients))
        return other

    def now(
        self, program: Program, tensors: dict[int, torch.Tensor], inputs: dict[int, torch.Tensor]
    ) -> dict[int, torch.Tensor]:
        """Before a replay: the gradients of now. Raises a GuardError where one is missing, or is new."""
        found: dict[int, torch.Tensor] = {}
        for leaf in self.all:
            owner = inputs[leaf.slot] if leaf.slot in inputs else tensors[leaf.slot]
            gradient = owner.grad
            if leaf.matters and leaf.had is not (gradient is not None) and not leaf.clears:
                raise _other(program.slots[leaf.slot].name, leaf.had)
            if gradient is None or not leaf.gradients:
                continue
            if len(leaf.gradients) > 1 and not (
                _is_same_memory(gradient, tensors[leaf.gradients[0]]) and leaf.lay in (None, _lie(gradient))
            ):
                raise changed(f"{program.slots[leaf.slot].name}.grad", tensors[leaf.gradients[0]], gradient)
            if len(leaf.gradients) == 1:
                found[leaf.gradients[0]] = gradient
        return found


def _lie(gradient: torch.Tensor) -> Any:
    if gradient.layout != torch.strided:
        return None
    return int(gradient.storage_offset()), gradient.stride()


def _is_same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(
        a.layout == b.layout == torch.strided
        and storage_address(a.untyped_storage()) == storage_address(b.untyped_storage())
    )


def _other(name: str, had: bool) -> ReplayError:
    if had:
        return GuardError(
            f"{name} had a gradient when the tape was made, and has none now: the tape would add to the old one. Clear "
            "gradients with zero_grad(set_to_none=False), or trace again."
        )
    return GuardError(
        f"The gradient of {name} was None when the tape was made, and is not now, so the function would add to it: "
        f"clear it first, with zero_grad() in the function or with {name}.grad = None before the replay."
    )
