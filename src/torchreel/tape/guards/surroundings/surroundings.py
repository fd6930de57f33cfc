"""What a function finds around it in Python: variables, attributes, items, modules and optimizers.

A tape has what the function made of them once. So they are looked at when the function is traced, and again before each
replay: a number that is another one, a name that leads to another tensor, a hook that was not there is told by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchreel.tape.capture.results.effects import Effect
from torchreel.tape.guards.changes import refusal
from torchreel.tape.guards.surroundings.guarded_values import GuardedValues
from torchreel.tape.guards.surroundings.reached import Reached, callables_in, roots_of
from torchreel.tape.guards.tensor_forms import TensorForm
from torchreel.tape.plain import is_tensor


class Surroundings:
    """All that a function can reach, when it is traced."""

    def __init__(self, function: Any, given: Any) -> None:
        walk = Reached()
        walk.begin([*roots_of(function), *(("argument", part) for part in callables_in(given, 0))])
        self._guarded: list[GuardedValues] = list(walk.guarded())
        self.modules = list(walk.modules())
        self.effects: list[Effect] = []
        self.names = walk.names
        self._refusal = walk.refusal
        self._forms: list[TensorForm] = []

    def end(self, is_used: Callable[[torch.Tensor], bool], slot_of: Callable[[torch.Tensor], int]) -> str:
        """After the call. Gives why no replay can stand for another call, or nothing.

        `slot_of` knows the tensors that ops made or were given. What the function left is in `effects`; whether its
        next call would read it, left_behind judges.
        """
        said = self._refusal
        for guarded in self._guarded:
            gone = set()
            for index, name, was, now in () if guarded.is_same() else guarded.changes():
                gone.add(index)
                if guarded.is_hidden:
                    said = said or _changed_within(name)
                elif not guarded.is_form:
                    said = said or refusal(name, was, now, is_used)
                    self.effects += guarded.effects(index, now, slot_of)
                if not guarded.is_form:
                    continue
                self.effects += guarded.growth(index, was, slot_of)
                # An input may be among them, which is another at the next call anyway.
                if any(is_tensor(part) and is_used(part) and slot_of(part) < 0 for part in guarded.parts(index)):
                    said = said or (
                        f"The function changed {name}, and read tensors from there: its next call would read others. "
                        "Keep them in a tensor that is changed in place."
                    )
            unused = [i for i, value in enumerate(guarded.values) if is_tensor(value) and not is_used(value)]
            self._forms += (guarded.form(index) for index in unused if index not in gone)
            gone.update(unused)
            if gone:
                guarded.keep([index for index in range(len(guarded.keys)) if index not in gone])
        self._guarded = [guarded for guarded in self._guarded if guarded.keys]
        return said

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors of the state, by name."""
        for guarded in self._guarded:
            yield from guarded.tensors()

    def optimizers(self) -> Iterator[tuple[str, torch.optim.Optimizer]]:
        """The optimizers that the function can reach, by name."""
        for guarded in self._guarded:
            for key, value in zip(guarded.keys, guarded.values, strict=True):
                if issubclass(type(value), torch.optim.Optimizer):
                    yield guarded.name_of(key), value

    def check(self) -> None:
        """Raises a GuardError if something is not what it was."""
        for guarded in self._guarded:
            guarded.check()
        for form in self._forms:
            form.check()


def _changed_within(name: str) -> str:
    return (
        f"The function changed {name}, which a replay would not: keep such values outside of what is traced, or in a "
        "tensor that is changed in place."
    )
