"""How much memory a program takes while it runs."""

from __future__ import annotations

from tests.program.small import small_program
from torchreel.program.model import Op, Program, Ref, Slot, Tree
from torchreel.program.query.peak import peak_bytes


def test_storages_live_from_their_op_to_their_last_use() -> None:
    program = small_program()
    program.slots = [Slot(0, "uint8", (8,), (1,), role="input", bytes=8)]
    program.slots += [Slot(storage, "uint8", (100,), (1,), bytes=100 * storage) for storage in (1, 2, 2, 3)]
    program.slots.append(Slot(4, "uint8", (100,), (1,), bytes=100))
    program.ops = [
        Op("a::a", [Ref(0)], [Ref(1)]),  # 100
        Op("a::b", [Ref(1)], [Ref(2)]),  # 100 + 200
        Op("a::view", [Ref(2)], [Ref(3)]),  # 200
        Op("a::c", [Ref(3)], [Ref(4)]),  # 200 + 300
        Op("a::d", [], [Ref(5)]),  # 300, which is returned, + 100
    ]
    program.bindings = []
    program.outputs = Tree("leaf", leaf=Ref(4))
    assert peak_bytes(program) == 500


def test_nothing() -> None:
    program: Program = small_program()
    program.ops, program.bindings, program.outputs = [], [], Tree("leaf")
    assert peak_bytes(program) == 0
