"""Whether a module still holds the same parameters, buffers, modules and hooks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from operator import is_
from typing import Any

import torch

from torchreel._torch.modules import PARTS, TENSOR_PARTS, parts_and_hooks
from torchreel.tape.guards.changes import changed, refusal
from torchreel.tape.guards.tensor_forms import TensorForm


class ModuleGuards:
    """The guards on one module. They run before each replay, so they are quick."""

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self._name = name
        self.module = id(module)
        self._space = module.__dict__
        self._is_used: Callable[[torch.Tensor], bool] = lambda _: True
        self._forms: list[TensorForm] = []
        self._note()

    def _note(self) -> None:
        self._was = parts_and_hooks(self._space)
        self._names = tuple(name for own in PARTS for name in self._space[own])

    def _items(self) -> Iterator[tuple[str, Any]]:
        """What it holds, but for its hooks: as many as there are names."""
        for own in PARTS:
            yield from self._space[own].items()

    def is_same(self) -> bool:
        now = parts_and_hooks(self._space)
        return len(now) == len(self._was) and all(map(is_, now, self._was))

    def end(self, is_used: Callable[[torch.Tensor], bool]) -> str:
        """After the call. Gives why no replay can stand for another one, or nothing.

        What the function itself put in the place of another tensor is left_behind's to judge.
        """
        self._is_used = is_used
        said = self._changes(is_used)
        for own in TENSOR_PARTS:
            for name, value in self._space[own].items():
                if isinstance(value, torch.Tensor) and not is_used(value):
                    self._forms.append(
                        TensorForm(f"{self._name}.{name}", functools.partial(self._space[own].get, name))
                    )
        return said

    def _changes(self, is_used: Callable[[torch.Tensor], bool]) -> str:
        if self.is_same():
            return ""
        was, said = dict(zip(self._names, self._was, strict=False)), ""
        for name, now in self._items():
            if name in was and was[name] is not now:
                said = said or refusal(f"{self._name}.{name}", was[name], now, is_used)
        self._note()
        return said

    def check(self) -> None:
        """Raises a GuardError that names what has changed."""
        for form in self._forms:
            form.check()
        if self.is_same():
            return
        now = dict(self._items())
        for name, was in zip(self._names, self._was, strict=False):
            if now.get(name) is not was and (not isinstance(was, torch.Tensor) or self._is_used(was)):
                raise changed(f"{self._name}.{name}", was, now.get(name))
        if tuple(now) != self._names:
            raise changed(f"what {self._name} is made of", self._names, tuple(now))
        before, after = self._was[len(self._names) :], parts_and_hooks(self._space)[len(now) :]
        if len(before) != len(after) or not all(map(is_, before, after)):
            raise changed(f"{self._name}._hooks", before, after)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, value in zip(self._names, self._was, strict=False):
            if isinstance(value, torch.Tensor):
                yield f"{self._name}.{name}", value
