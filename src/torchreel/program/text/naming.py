"""A Python name for each slot of a program: readable, unique, and none that means something else already."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator

from torchreel.program.model import Op, Program, Ref, Value

_TAKEN = frozenset((*dir(builtins), *keyword.kwlist, *keyword.softkwlist))
# Long paths make names that nobody reads.
_MOST_LETTERS = 60


class Names:
    """Gives out names; each one once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*_TAKEN, *taken}
        self._next: dict[str, int] = {}

    def unique(self, wish: str) -> str:
        """The wish as an identifier; with a number behind it if somebody has it."""
        stem = identifier(wish)
        name, count = stem, self._next.get(stem, 0)
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._next[stem] = count
        self._taken.add(name)
        return name


def identifier(text: str) -> str:
    """`model.layers.0.weight` -> `model_layers_0_weight`."""
    word = re.sub(r"[^0-9A-Za-z_]+", "_", text)[-_MOST_LETTERS:].strip("_")
    if not word:
        return "value"
    return f"_{word}" if word[0].isdigit() else word


def base_name(op: Op) -> str:
    """`aten::add_.Tensor` -> `add_`."""
    return op.name.rpartition("::")[2].partition(".")[0]


def slot_names(program: Program, names: Names) -> dict[int, str]:
    """A name for each slot that an op, a result or a binding speaks of: its own, or that of the op that made it."""
    given: dict[int, str] = {}
    for entry in program.inputs:
        given[entry.slot] = names.unique(entry.name or "input")
    for index, slot in enumerate(program.slots):
        if slot.role != "made" and index not in given:
            given[index] = names.unique(slot.name or ("number" if slot.is_number else slot.role))
    for op in program.ops:
        for index in slots_in(op.results):
            if index not in given:
                given[index] = names.unique(base_name(op))
    return given


def slots_in(values: Iterable[Value]) -> Iterator[int]:
    """The slots that are named as tensors."""
    for value in values:
        if isinstance(value, Ref):
            yield value.slot
        elif isinstance(value, list):
            yield from slots_in(value)
