"""A table of rules: asked by name or by what they say, counted and printed."""

from __future__ import annotations

import difflib
import fnmatch
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, overload

from torchreel.errors import OptionError
from torchreel.tape.rules.rule import Rule
from torchreel.tape.rules.schemas import NAMESPACE

COLUMNS = tuple(Rule.__struct_fields__) + ("traced", "base", "overload", "padded")
MOST_LINES = 40  # of a table that is printed


class RuleTable(Sequence[Rule]):
    """Some of the rules, in the order of native_functions.yaml."""

    def __init__(self, rules: Collection[Rule]) -> None:
        self._rules = tuple(rules)
        self._by_name = {rule.name: rule for rule in self._rules}

    def __len__(self) -> int:
        return len(self._rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    @overload
    def __getitem__(self, index: int) -> Rule: ...
    @overload
    def __getitem__(self, index: slice) -> RuleTable: ...
    def __getitem__(self, index: int | slice) -> Rule | RuleTable:
        return RuleTable(self._rules[index]) if isinstance(index, slice) else self._rules[index]

    def of(self, name: str) -> Rule:
        """The rule of one function: "aten::add_.Tensor"; the namespace, and torch's ".default", may be there or not."""
        full = NAMESPACE + name.removeprefix(NAMESPACE).removesuffix(".default")
        found = self._by_name.get(full)
        if found is None:
            raise OptionError(self._unknown(full))
        return found

    def named(self, pattern: str) -> RuleTable:
        """All overloads of a function ("add_"), one of them ("add_.Tensor"), or what a pattern finds ("add*")."""
        pattern = pattern.removeprefix(NAMESPACE)
        return RuleTable(
            [
                rule
                for rule in self._rules
                if rule.base == pattern or fnmatch.fnmatchcase(rule.name.removeprefix(NAMESPACE), pattern)
            ]
        )

    def where(self, **conditions: Any) -> RuleTable:
        """Those of which all is true: where(kind="out", traced=False).

        A condition is a value; a set of values, one of which must be it; or a function of the value. For a column of
        several names (writes, options, arguments ...) it is one of them: where(writes="self").
        """
        for column in conditions:
            if column not in COLUMNS:
                raise OptionError(f"Rules have no column {column!r}: choose from {', '.join(COLUMNS)}.")
        return RuleTable(
            [
                rule
                for rule in self._rules
                if all(_holds(getattr(rule, column), wanted) for column, wanted in conditions.items())
            ]
        )

    def counts(self, column: str) -> dict[Any, int]:
        """How many rules say what in a column, the most frequent first."""
        if column not in COLUMNS:
            raise OptionError(f"Rules have no column {column!r}: choose from {', '.join(COLUMNS)}.")
        return dict(Counter(getattr(rule, column) for rule in self._rules).most_common())

    def __repr__(self) -> str:
        return f"<{len(self._rules):,} rules>"

    def __str__(self) -> str:
        return self.text(MOST_LINES)

    def text(self, most: int | None = None) -> str:
        """The table, one line per function, below a line of counts; `most` lines of it."""
        from torchreel.tape.rules.text import lines_of

        return "\n".join(lines_of(self, most))

    def _unknown(self, full: str) -> str:
        family = [rule.name for rule in self.named(full)]
        if family:
            return f"{full} has no overload of that name: there are {', '.join(family)}."
        if "." not in full and (overloads := [name for name in self._by_name if name.startswith(full + ".")]):
            return f"{full} has overloads: name one of {', '.join(overloads)}."
        near = difflib.get_close_matches(full, self._by_name, n=3)
        hint = f": did you mean {' or '.join(near)}?" if near else "."
        return f"There is no function {full} in native_functions.yaml{hint}"


def _holds(value: Any, wanted: Any) -> bool:
    if callable(wanted):
        return bool(wanted(value))
    if isinstance(wanted, (set, frozenset)):
        return any(_holds(value, one) for one in wanted)
    if isinstance(value, tuple) and isinstance(wanted, str):
        return wanted in value
    return bool(value == wanted)
