"""How much memory a program takes while it runs, besides what it is given."""

from __future__ import annotations

from torchreel.program.model import Program, Ref
from torchreel.program.query.last_uses import last_uses
from torchreel.program.validate import atoms


def peak_bytes(program: Program) -> int:
    """The most bytes of storages that ops made, at any one time."""
    outside = {slot.storage for slot in program.slots if slot.role != "made"}
    last: dict[int, int] = {}
    for index, op_index in last_uses(program).items():
        storage = program.slots[index].storage
        last[storage] = max(op_index, last.get(storage, -1))
    ends: dict[int, list[int]] = {}
    for storage, op_index in last.items():
        ends.setdefault(op_index, []).append(storage)
    alive: dict[int, int] = {}
    total = most = 0
    for op_index, op in enumerate(program.ops):
        for value in atoms(op.results):
            slot = program.slots[value.slot] if isinstance(value, Ref) else None
            if slot is not None and slot.storage not in outside:
                total += slot.bytes - alive.get(slot.storage, 0)
                alive[slot.storage] = slot.bytes
        most = max(most, total)
        for storage in ends.get(op_index, []):
            total -= alive.pop(storage, 0)
    return most
