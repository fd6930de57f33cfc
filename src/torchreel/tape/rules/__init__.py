"""The rules of recording, one for each function of ATen: a table to print and to ask.

    from torchreel.tape import rules
    print(rules)                                   # the counts
    print(rules.of("aten::add_.Tensor"))           # one of them, in full
    print(rules.named("add*"))                     # a family, one line each
    rules.where(kind="out", traced=False)          # those that fit, as a table again
    [rule.name for rule in rules.where(writes="self", way="wrapper")]

`python -m torchreel.tape.rules add_ --kind inplace` prints the same. They are derived from the schemas that torch ships
with, without importing torch; rule.py says what a rule says.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from torchreel.tape.rules.rule import Rule
from torchreel.tape.rules.table import RuleTable

__all__ = ["Rule", "RuleTable", "counts", "named", "of", "table", "where"]


@functools.cache
def table() -> RuleTable:
    """All of them."""
    from torchreel.tape.rules import cache as rule_cache
    from torchreel.tape.rules.derivation import derive

    rules = rule_cache.load()
    if rules is None:
        rules = derive()
        rule_cache.store(rules)
    return RuleTable(rules)


def of(name: str) -> Rule:
    """The rule of one function, by its full name: "aten::add_.Tensor"."""
    return table().of(name)


def named(pattern: str) -> RuleTable:
    """The rules of all overloads of a function, or of what a pattern like "add*" finds."""
    return table().named(pattern)


def where(**conditions: Any) -> RuleTable:
    """The rules of which all conditions are true: see RuleTable.where."""
    return table().where(**conditions)


def counts(column: str) -> dict[Any, int]:
    """How many rules say what in a column."""
    return table().counts(column)


class _Rules(ModuleType):
    """This module is itself the table: it has a length, can be iterated, and prints."""

    def __len__(self) -> int:
        return len(table())

    def __iter__(self) -> Iterator[Rule]:
        return iter(table())

    def __str__(self) -> str:
        from torchreel.tape.rules.text import summary

        return summary(table())


sys.modules[__name__].__class__ = _Rules
