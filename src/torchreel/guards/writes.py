"""Writes that outlive a call, for a replay that does them again.

What is written follows from the call, like all that the call made: where its guards hold, another call writes the same,
around other tensors. What was written to may not be read by the call as well: its next call would read something else.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from torchreel.guards.eager import WriteError

# How a value is written, and the value.
Write = tuple[Callable[[Any], object], Any]


class Writes:
    """Writes to lists and to variables of enclosing functions. FollowedCall knows those to dicts."""

    def __init__(self) -> None:
        self._appended: dict[int, tuple[list[Any], list[Any]]] = {}
        self._items: dict[tuple[int, int], tuple[list[Any], int]] = {}
        self._cells: dict[int, types.CellType] = {}

    def append(self, holder: list[Any], value: Any) -> None:
        self._appended.setdefault(id(holder), (holder, []))[1].append(value)

    def set_item(self, holder: list[Any], index: int) -> None:
        if index < 0:
            raise WriteError("sets an item of a list, counted from its end")
        if id(holder) in self._appended:
            raise WriteError("sets an item of a list that it appends to")
        self._items[id(holder), index] = (holder, index)

    def has_put(self, holder: list[Any], index: Any) -> bool:
        """Whether this item is one that the call itself has put there."""
        if type(index) is not int:
            return False
        _, values = self._appended.get(id(holder), (holder, []))
        return -len(values) <= index < 0 or (id(holder), index) in self._items

    def set_variable(self, cell: types.CellType) -> None:
        self._cells[id(cell)] = cell

    def has_set(self, cell: types.CellType) -> bool:
        return id(cell) in self._cells

    def lists(self) -> Iterator[list[Any]]:
        """The lists that were written to."""
        yield from (holder for holder, _ in self._appended.values())
        yield from (holder for holder, _ in self._items.values())

    def all(self) -> Iterator[Write]:
        """When the call has ended. Raises WriteError where something else has changed a list as well."""
        for holder, values in self._appended.values():
            if len(holder) < len(values) or any(
                a is not b for a, b in zip(holder[-len(values) :], values, strict=True)
            ):
                raise WriteError("changes a list in several ways, which was made before the call")
            yield from ((holder.append, value) for value in values)
        for holder, index in self._items.values():
            if index >= len(holder):
                raise WriteError("changes a list in several ways, which was made before the call")
            yield functools.partial(list.__setitem__, holder, index), holder[index]
        for cell in self._cells.values():
            yield functools.partial(setattr, cell, "cell_contents"), cell.cell_contents
