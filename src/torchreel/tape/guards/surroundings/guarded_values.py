"""Values that a function can read, each with how to read it again: compared before a replay."""

from __future__ import annotations

import functools
import types
from collections import ChainMap, UserDict
from collections.abc import Callable, Iterable, Iterator
from operator import is_
from typing import Any

import torch

from torchreel.tape.capture.results.effects import Effect, effects_of
from torchreel.tape.guards.changes import changed
from torchreel.tape.guards.tensor_forms import TensorForm
from torchreel.tape.plain import is_alike, is_plain, is_tensor, joined

MAPPINGS = (dict, types.MappingProxyType, ChainMap, UserDict)


class GuardedValues:
    """Values of one owner, with how to read them again."""

    def __init__(
        self,
        owner: str,
        read: Callable[[Any], Any],
        keys: Iterable[Any],
        is_form: bool = False,
        name: str = "",
        write: Callable[[Any, Any], object] | None = None,
        is_hidden: bool = False,
    ) -> None:
        """`is_form`: the values say how a container is made up, which the function itself may change.

        `is_hidden`: they say what is in a thing that a replay cannot put anything into.
        """
        self._owner, self._read, self._name, self._write = owner, read, name, write
        self.keys = tuple(keys)
        self.values = tuple(map(read, self.keys))
        self.is_form, self.is_hidden = is_form, is_hidden

    def parts(self, index: int) -> list[Any]:
        """What is in a container whose form is looked at."""
        container = self.keys[index]
        return list(container.values()) if isinstance(container, MAPPINGS) else list(container)

    def effects(self, index: int, now: Any, slot_of: Callable[[Any], int]) -> Iterator[Effect]:
        """The effect of replacing a value by one that holds tensors."""
        if self._write is not None and not is_plain(now):
            yield from effects_of(functools.partial(self._write, self.keys[index]), now, slot_of)

    def growth(self, index: int, was: Any, slot_of: Callable[[Any], int]) -> Iterator[Effect]:
        """The effects of adding items to a container."""
        container = self.keys[index]
        if isinstance(container, list) and len(container) > was:
            added = [(container.append, value) for value in container[was:]]
        elif isinstance(container, dict):
            known = set(map(id, was))
            new = ((k, v) for k, v in container.items() if id(k) not in known and (not is_plain(k) or k not in was))
            added = [(functools.partial(container.__setitem__, k), v) for k, v in new]
        else:
            return
        for put, value in added:
            yield from effects_of(put, value, slot_of)

    def is_same(self) -> bool:
        return all(map(is_, map(self._read, self.keys), self.values))

    def changes(self) -> Iterator[tuple[int, str, Any, Any]]:
        """Place, name, what was there and what is there now."""
        for index, (key, was) in enumerate(zip(self.keys, self.values, strict=True)):
            now = self._read(key)
            if was is not now and not is_alike(was, now):
                yield index, self.name_of(key), was, now

    def check(self) -> None:
        """Raises a GuardError if something is not what it was."""
        if not self.is_same():
            for _, name, was, now in self.changes():
                raise changed(name, was, now)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for key, value in zip(self.keys, self.values, strict=True):
            if is_tensor(value):
                yield self.name_of(key), value

    def form(self, index: int) -> TensorForm:
        """What the tensor is like that stands there, of which nothing else matters."""
        return TensorForm(self.name_of(self.keys[index]), functools.partial(self._read, self.keys[index]))

    def name_of(self, key: Any) -> str:
        return self._name or joined(self._owner, key)

    def keep(self, indices: list[int]) -> None:
        """Look no more at the others."""
        self.keys = tuple(self.keys[index] for index in indices)
        self.values = tuple(self.values[index] for index in indices)


class GuardedItems(GuardedValues):
    """The items of a list: compared all at once, for there may be many."""

    def __init__(self, name: str, items: Any) -> None:
        self._items = items
        self._is_whole = True
        super().__init__(name, functools.partial(_at, items), range(len(items)), write=items.__setitem__)

    def is_same(self) -> bool:
        if not self._is_whole:
            return super().is_same()
        return len(self._items) == len(self.values) and all(map(is_, self._items, self.values))

    def keep(self, indices: list[int]) -> None:
        self._is_whole = len(indices) == len(self.keys)
        super().keep(indices)


def _at(items: Any, index: int) -> Any:
    return items[index] if index < len(items) else None


def guarded_container(name: str, value: Any) -> Iterator[GuardedValues]:
    if isinstance(value, MAPPINGS):
        yield GuardedValues(name, value.get, list(value), write=getattr(value, "__setitem__", None))
        yield GuardedValues("", tuple, [value], is_form=True, name=f"the order of the keys of {name}")
    else:
        yield GuardedItems(name, value)
        yield GuardedValues("", len, [value], is_form=True, name=f"the length of {name}")


def parts_of(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, MAPPINGS) else enumerate(value)
