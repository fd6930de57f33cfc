"""Lists, dicts and the like, as places to look at."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any

from torchreel.tape.guards.surroundings.guarded_values import MAPPINGS, GuardedValues


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
