"""Where a program comes from and what it needs, as comment lines at the top of its text."""

from __future__ import annotations

from collections.abc import Iterator

from torchreel.program.model import STATE_ROLES, Program, Slot
from torchreel.program.text.literals import comment


def provenance(program: Program) -> Iterator[str]:
    """The comment lines."""
    for line in _lines(program):
        yield f"# {comment(line)}".rstrip()


def _lines(program: Program) -> Iterator[str]:
    made = program.provenance
    yield f"{made.function or 'A tape'}: {len(program.ops)} ops, recorded {made.made} by torchreel {made.torchreel}"
    yield f"with torch {made.torch}, Python {made.python} on {made.machine}."
    yield "run(inputs, state) does what it did, without its code: see `run` below."
    inputs = [(entry.name, program.slots[entry.slot]) for entry in program.inputs]
    yield from _table("inputs, a list:", inputs)
    state = [(slot.name, slot) for slot in program.slots if slot.role in STATE_ROLES]
    yield from _table("state, a dict by name; it is changed in place:", state)
    for index, words in enumerate(program.objects):
        yield f"objects[{index}]: {words}"
    if program.notes:
        yield ""
        yield from (f"Note: {note}" for note in program.notes)


def _table(title: str, entries: list[tuple[str, Slot]]) -> Iterator[str]:
    if not entries:
        return
    yield ""
    yield title
    width = min(48, max(len(name) for name, _ in entries))
    for name, slot in entries:
        where = "" if slot.device == "cpu" else f" on {slot.device}"
        yield f"  {name:<{width}}  {slot.dtype} {list(slot.sizes)}{where}  {slot.role}"
