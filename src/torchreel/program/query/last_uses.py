"""When each slot is spoken of for the last time, so that its memory is given back as early as the tape does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchreel.program.model import Op, Program, Ref, StorageOf, Tree, Value


def last_uses(program: Program) -> dict[int, int]:
    """Each slot -> the place of the last op that speaks of it; the number of ops for what outlives them."""
    last: dict[int, int] = {}
    for index, op in enumerate(program.ops):
        for slot in spoken_of(op):
            last[slot] = index
    end = len(program.ops)
    for slot in _kept(program):
        last[slot] = end
    return last


def spoken_of(op: Op) -> Iterator[int]:
    """The slots among the arguments and results of an op."""
    yield from _slots((*op.args, *op.results))


def leaves(tree: Tree) -> Iterator[Tree]:
    """The leaves of a structure, from left to right."""
    if tree.kind == "leaf":
        yield tree
    for part in tree.parts:
        yield from leaves(part)


def gradients_to_be_none(program: Program) -> list[int]:
    """The slots from outside whose gradient must be None at the beginning: else the function would add to it."""
    made = [entry for entry in program.bindings if entry.kind == "grad" and entry.value >= 0 and not entry.cleared]
    return [entry.owner for entry in made if program.slots[entry.owner].role != "made"]


def _kept(program: Program) -> Iterator[int]:
    yield from _slots(leaf.leaf for leaf in leaves(program.outputs))
    for binding in program.bindings:
        yield binding.owner
        if binding.value >= 0:
            yield binding.value


def _slots(values: Iterable[Value]) -> Iterator[int]:
    for value in values:
        if isinstance(value, Ref | StorageOf):
            yield value.slot
        elif isinstance(value, list):
            yield from _slots(value)
