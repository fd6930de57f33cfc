"""Every opcode of this CPython is in one list: it has a rule, needs none, or is not followed."""

from __future__ import annotations

import dis

import pytest

from torchreel._cpython import opcodes
from torchreel.guards.eager import EagerError
from torchreel.guards.opcodes import BY_NAME, RULES, rules_of

LISTS = [opcodes.MOVE_VALUES, opcodes.MOVE_CONTROL, opcodes.HANDLE_EXCEPTIONS, opcodes.NOT_FOLLOWED, frozenset(BY_NAME)]


def test_every_opcode_is_in_one_list() -> None:
    listed = [name for names in LISTS for name in names]
    assert sorted(listed) == sorted(dis.opmap)


def test_opcodes_with_a_rule_are_those_that_may_read_or_write() -> None:
    assert set(RULES) == {dis.opmap[name] for name in {*BY_NAME, *opcodes.NOT_FOLLOWED}}


@pytest.mark.parametrize("name", ["LOAD_SOMETHING_NEW", *sorted(opcodes.NOT_FOLLOWED)])
def test_an_opcode_that_is_not_known_is_a_reason_to_run_eagerly(name: str) -> None:
    (rule,) = rules_of({name: 7}).values()
    with pytest.raises(EagerError, match=f"uses {name}, which is not followed"):
        rule(None, None, 0)  # type: ignore[arg-type]


def test_an_opcode_that_only_moves_values_has_no_rule() -> None:
    assert rules_of({name: dis.opmap[name] for name in opcodes.WITHOUT_RULE}) == {}
