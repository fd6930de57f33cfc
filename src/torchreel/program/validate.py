"""Whether a program makes sense: everything that a replay, a listing or a loader takes for granted is looked at here.

A program that comes from a file may hold anything. What is checked: each index is in its range, each slot lies within
its storage, no op reads what none has made, formulas and trees are well formed. What ops do with their arguments is
checked by torch when they run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from torchreel.program.dtypes import ITEM_BYTES
from torchreel.program.model import (
    Atom,
    Device,
    Formula,
    Generator,
    Named,
    Object,
    Op,
    Program,
    Ref,
    Slot,
    StorageOf,
    Tree,
    Value,
)

# Sizes are products of what a file says: this many bytes have no place anywhere, and no sum of them overflows.
_MOST_BYTES = 1 << 56
_MOST_DIMENSIONS = 64  # as torch allows
_MOST_TREE_DEPTH = 200
_MOST_NUMBERS = 15  # at a time, of a formula: native/tape/plan.cpp has room for so many

# Names that stand in the Python source of a tape, which a person may run: nothing else may hide in them.
_OP_NAME = re.compile(r"\w+::\w+(\.\w+)?", re.ASCII)
_DEVICE_NAME = re.compile(r"[a-z]+(:[0-9]{1,4})?")

# Tuples, because isinstance takes thrice as long with a union.
_PLAIN = (int, float, str, type(None))
_OF_SLOTS = (Ref, StorageOf)
_NAMES = (Named, Device)

OPERANDS = {"sub": 2, "mul": 2, "div": 2, "pow": 2, "neg": 1, "sqrt": 1}


class NonsenseError(Exception):
    """What makes no sense, as the end of a sentence that begins with the name of the file."""


def check(program: Program, data: Mapping[int, int] | None = None) -> None:
    """Raise NonsenseError if the program makes no sense. `data` is the number of bytes that come with each storage."""
    most_storages = 1024 + 16 * len(program.slots)  # a replay makes tables of this length
    for index, slot in enumerate(program.slots):
        _check_slot(index, slot, data)
        if slot.storage > most_storages:
            raise NonsenseError(f"slot {index} is of storage {slot.storage}, and there are not so many")
    _check_stacks(program)
    _check_ops(program)
    _check_ends(program)
    _check_constants(program)
    if data is not None:
        _check_data(program, data)


def extent(slot: Slot) -> int:
    """The bytes from the beginning of its storage to the end of its last element."""
    if 0 in slot.sizes:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(slot.sizes, slot.strides, strict=True))
    return (slot.offset + last + 1) * ITEM_BYTES[slot.dtype]


def elements(slot: Slot) -> int:
    return math.prod(slot.sizes)


def _check_slot(index: int, slot: Slot, data: Mapping[int, int] | None) -> None:
    if slot.dtype not in ITEM_BYTES:
        raise NonsenseError(f"slot {index} has the dtype {slot.dtype[:40]!r}, which torch does not have")
    if len(slot.sizes) > _MOST_DIMENSIONS or len(slot.strides) > _MOST_DIMENSIONS:
        raise NonsenseError(f"slot {index} has {len(slot.sizes)} dimensions")
    if not _DEVICE_NAME.fullmatch(slot.device) or not slot.layout.isidentifier():
        raise NonsenseError(f"slot {index} is on the device {slot.device[:40]!r} with the layout {slot.layout[:40]!r}")
    if slot.storage < 0 or slot.bytes < 0 or slot.offset < 0 or any(n < 0 for n in (*slot.sizes, *slot.strides)):
        raise NonsenseError(f"slot {index} has a negative size, stride, offset or storage")
    if max(elements(slot) * ITEM_BYTES[slot.dtype], slot.bytes, *slot.strides, 0) > _MOST_BYTES:
        raise NonsenseError(f"slot {index} is larger than any memory")
    if slot.layout == "strided":
        _check_within_storage(index, slot, data)


def _check_within_storage(index: int, slot: Slot, data: Mapping[int, int] | None) -> None:
    if len(slot.sizes) != len(slot.strides):
        raise NonsenseError(f"slot {index} has {len(slot.sizes)} sizes and {len(slot.strides)} strides")
    # A storage that an op made may since have been emptied under its tensors; one that is stored may not.
    stored = data.get(slot.storage) if data is not None and slot.role != "made" else None
    if stored is not None and extent(slot) > stored:
        raise NonsenseError(f"slot {index} ends at byte {extent(slot)} of a storage that has {stored}")


def _check_stacks(program: Program) -> None:
    if not program.stacks:
        raise NonsenseError("it has no empty stack")
    for index, stack in enumerate(program.stacks):
        if index and not 0 <= stack.parent < index:
            raise NonsenseError(f"stack {index} has the caller {stack.parent}")
        if index and not 0 <= stack.frame < len(program.frames):
            raise NonsenseError(f"stack {index} has the frame {stack.frame} of {len(program.frames)}")


def _check_ops(program: Program) -> None:
    made = [slot.role != "made" for slot in program.slots]
    for index, op in enumerate(program.ops):
        _check_places(program, index, op)
        location = f"op {index}"
        for atom in atoms(op.args):
            if isinstance(atom, _PLAIN):
                continue
            _check_atom(program, location, atom)
            if isinstance(atom, _OF_SLOTS) and not made[atom.slot]:
                raise NonsenseError(f"{location} reads slot {atom.slot}, which no op before it has made")
            if isinstance(atom, Formula):
                _check_formula(program, index, atom)
        for atom in atoms(op.results):
            _check_atom(program, location, atom)
            if isinstance(atom, Ref):
                made[atom.slot] = True
    _check_made_at_the_end(program, made)


def _check_places(program: Program, index: int, op: Op) -> None:
    if not _OP_NAME.fullmatch(op.name):
        raise NonsenseError(f"op {index} has the name {op.name[:40]!r}")
    if not 0 <= op.stack < len(program.stacks):
        raise NonsenseError(f"op {index} has the stack {op.stack} of {len(program.stacks)}")
    if not -1 <= op.module < len(program.modules):
        raise NonsenseError(f"op {index} has the module {op.module} of {len(program.modules)}")
    if not -1 <= op.forward < len(program.ops):
        raise NonsenseError(f"op {index} belongs to the forward op {op.forward} of {len(program.ops)}")


def atoms(values: Iterable[Value]) -> Iterator[Atom]:
    """The values, and those in lists among them."""
    for value in values:
        if isinstance(value, list):
            yield from value
        else:
            yield value


def _check_atom(program: Program, location: str, atom: Atom) -> None:
    if isinstance(atom, _NAMES):
        if not (_DEVICE_NAME.fullmatch(atom.name) if isinstance(atom, Device) else atom.name.isidentifier()):
            raise NonsenseError(f"{location} has the value {atom.name[:40]!r}")
        return
    if isinstance(atom, _OF_SLOTS):
        number, count, noun = atom.slot, len(program.slots), "slot"
    elif isinstance(atom, Generator):
        number, count, noun = atom.index, len(program.generators), "generator"
    elif isinstance(atom, Object):
        number, count, noun = atom.index, len(program.objects), "object"
    else:
        return
    if not 0 <= number < count:
        raise NonsenseError(f"{location} names {noun} {number} of {count}")


def _check_formula(program: Program, index: int, formula: Formula) -> None:
    depth = 0
    for word in formula.postfix:
        if not isinstance(word, str):
            depth += 1
        elif word.startswith("item:"):
            _check_item(program, index, word.removeprefix("item:"))
            depth += 1
        elif depth < OPERANDS.get(word, math.inf):
            raise NonsenseError(f"op {index} has a formula that does not add up at {word[:40]!r}")
        else:
            depth -= OPERANDS[word] - 1
        if depth > _MOST_NUMBERS:
            raise NonsenseError(f"op {index} has a formula of more than {_MOST_NUMBERS} numbers at a time")
    if depth != 1:
        raise NonsenseError(f"op {index} has a formula that leaves {depth} numbers")


def _check_item(program: Program, index: int, text: str) -> None:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 18 else -1
    if not 0 <= number < index:
        raise NonsenseError(f"op {index} computes with a number of op {text[:20]!r}, which does not come before it")
    if not any(isinstance(result, bool | int | float) for result in program.ops[number].results):
        raise NonsenseError(f"op {index} computes with a number of op {number}, which returns none")


def _check_made_at_the_end(program: Program, made: list[bool]) -> None:
    count = len(program.slots)
    for binding in program.bindings:
        for slot, least in ((binding.owner, 0), (binding.value, -1)):
            if not least <= slot < count:
                raise NonsenseError(f"a binding names slot {slot} of {count}")
            if slot >= 0 and not made[slot]:
                raise NonsenseError(f"a binding names slot {slot}, which no op has made")
    for leaf in _leaves(program.outputs):
        _check_atom(program, "an output", leaf)
        if isinstance(leaf, Ref | StorageOf) and not made[leaf.slot]:
            raise NonsenseError(f"an output is slot {leaf.slot}, which no op has made")


def _check_ends(program: Program) -> None:
    for leaf in _leaves(program.arguments):
        _check_atom(program, "an argument", leaf)
    for given in program.inputs:
        if not 0 <= given.slot < len(program.slots):
            raise NonsenseError(f"the input {given.name[:40]!r} names slot {given.slot} of {len(program.slots)}")
        if program.slots[given.slot].role == "made":
            raise NonsenseError(f"the input {given.name[:40]!r} is a slot that an op makes")


def _leaves(tree: Tree) -> Iterator[Atom]:
    waiting = [(tree, 0)]
    while waiting:
        part, depth = waiting.pop()
        if depth > _MOST_TREE_DEPTH:
            raise NonsenseError(f"its arguments or outputs are nested more than {_MOST_TREE_DEPTH} deep")
        if part.kind == "dict" and len(part.keys) != len(part.parts):
            raise NonsenseError(f"a dict of {len(part.keys)} keys has {len(part.parts)} values")
        if part.kind == "leaf":
            yield from atoms([part.leaf])
        waiting.extend((child, depth + 1) for child in part.parts)


def _check_constants(program: Program) -> None:
    for index, content in program.constants.items():
        if not 0 <= index < len(program.slots):
            raise NonsenseError(f"a constant names slot {index} of {len(program.slots)}")
        slot = program.slots[index]
        size = elements(slot) * ITEM_BYTES[slot.dtype]
        if slot.layout == "strided" and len(content) != size:
            raise NonsenseError(f"the constant in slot {index} has {len(content)} bytes where {size} are needed")


def _check_data(program: Program, data: Mapping[int, int]) -> None:
    storages = {slot.storage for slot in program.slots if slot.role != "made"}
    for storage in data:
        if storage not in storages:
            raise NonsenseError(f"it has data of storage {storage}, which nothing of the program came from")
